"""The study file: what goes in comes out, and other files are left alone."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_runs import small, tiny

from hwmodels.errors import InvalidInput
from sim.study import store, table
from sim.study.evaluate import Outcome
from sim.study.point import SCHEMA, keys
from sim.study.study import Study

OK = Outcome("ok", "", {"iteration_time_s": 1.5, "swap_bytes": 7}, ("a note",), 0.25)

counts = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)
shares = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3, unique=True)
outcomes = st.builds(
    Outcome,
    st.sampled_from(["ok", "does not fit", "invalid", "error"]),
    st.text(max_size=20),
    st.dictionaries(
        st.sampled_from(["iteration_time_s", "swap_bytes", "bottleneck"]),
        st.integers(0, 2**62) | st.floats(allow_nan=False) | st.text(max_size=9),
    ),
    st.lists(st.text(max_size=9), max_size=2).map(tuple),
    st.floats(0, 1e6),
)


@settings(max_examples=25, deadline=None)
@given(minibatch=counts, shares=shares, data=st.data())
def test_grid_to_points_to_store_to_rows(minibatch: Any, shares: Any, data: Any) -> None:
    study = Study.grid(
        model=tiny(), server=small(), schedule=["dp", "1f1b"], minibatch=minibatch,
        microbatch=[None, 1], degraded=[("uplink0", x) for x in shares],
    )  # fmt: skip
    names = keys(study.points)
    assert len(set(names)) == len(names)
    given = [data.draw(outcomes) for _ in names]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.study"
        with store.opened(path, create=True) as file:
            order = data.draw(st.permutations(range(len(names))))
            for at in order:
                file.add(names[at], "1", at, study.points[at].settings, given[at])
        with store.opened(path, create=False) as file:
            assert file.outcomes("1") == dict(zip(names, given, strict=True))
            found = [table.row(*each) for each in file.rows("1")]
    wanted = zip(study.points, given, strict=True)
    assert found == [table.row(point.settings, outcome) for point, outcome in wanted]


def test_rows_of_other_versions_are_kept_apart(tmp_path: Path) -> None:
    with store.opened(tmp_path / "a.study", create=True) as file:
        file.add("a", "1", 0, {"minibatch": 1}, OK)
        file.add("b", "2", 0, {"minibatch": 1}, OK)
        assert list(file.outcomes("2")) == ["b"]
        assert file.others("2") == 1


def test_a_later_outcome_replaces_the_earlier(tmp_path: Path) -> None:
    with store.opened(tmp_path / "a.study", create=True) as file:
        file.add("a", "1", 0, {}, OK._replace(status="error"))
        file.add("a", "1", 0, {}, OK)
        assert file.outcomes("1") == {"a": OK}


def test_written_at_once_and_seen_by_others(tmp_path: Path) -> None:
    path = tmp_path / "a.study"
    with store.opened(path, create=True) as one, store.opened(path, create=True) as two:
        one.add("a", "1", 0, {}, OK)
        assert two.outcomes("1") == {"a": OK}
        two.add("b", "1", 1, {}, OK)
        assert list(one.outcomes("1")) == ["a", "b"]
        assert one.database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_empty_file_becomes_a_study_file(tmp_path: Path) -> None:
    path = tmp_path / "a.study"  # what a process leaves that is killed while it makes the file
    path.touch()
    with store.opened(path, create=True) as file:
        file.add("a", "1", 0, {}, OK)
        assert file.outcomes("1") == {"a": OK}


def foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE rows (precious TEXT)")
    database.commit()
    database.close()


def other_schema(path: Path) -> None:
    with store.opened(path, create=True) as file:
        file.add("a", "1", 0, {}, OK)
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign, ("no study file",)),
        (other_schema, (f"schema {SCHEMA + 1}", "another name")),
        (lambda path: path.write_text("minibatch = 8\n" * 99), ("not a database",)),
        (lambda path: path.mkdir(), ("folder",)),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_other_files_are_refused_and_left_alone(
    tmp_path: Path, make: Any, words: tuple[str, ...], create: bool
) -> None:
    path = tmp_path / "a.study"
    make(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(InvalidInput) as said, store.opened(path, create=create):
        pass
    assert all(word in str(said.value) for word in (*words, "a.study"))
    assert "\n" not in str(said.value)
    assert path.is_dir() or path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["a.study"]


def test_missing_file_or_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match="no study file"),
        store.opened(tmp_path / "a.study", create=False),
    ):
        pass
    assert not (tmp_path / "a.study").exists()
    with (
        pytest.raises(InvalidInput, match="no folder"),
        store.opened(tmp_path / "b" / "a.study", create=True),
    ):
        pass


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with store.opened(tmp_path / "a.study", create=True) as file:
        file.database.execute("PRAGMA query_only = ON")
        with pytest.raises(InvalidInput, match="cannot be used"):
            file.add("a", "1", 0, {}, OK)
