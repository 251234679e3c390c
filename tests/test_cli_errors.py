"""Bad input on the command line: one sentence on stderr, exit code 2, nothing on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hwmodels

Command = Callable[..., tuple[int, str, str]]

BOX = "pcie-4u-4x1080ti"


class Bad(NamedTuple):
    """Arguments that must be refused, and words that the sentence must contain."""

    arguments: list[str]
    words: tuple[str, ...]
    stdin: str = ""


def run_with(**changes: str | None) -> list[str]:
    """Arguments of a ``run`` that works, with some options changed or (None) left out."""
    options: dict[str, str | None] = {
        "schedule": "harmony-pp", "model": "gpt2-small", "server": BOX, "minibatch": "4",
        "sequence": "128",
    } | {name.replace("_", "-"): value for name, value in changes.items()}  # fmt: skip
    given = [(f"--{name}", value) for name, value in options.items() if value is not None]
    return ["run", *(part for pair in given for part in pair)]


COMPARE = ["compare", "--model", "gpt2-small", "--server", BOX, "--minibatch", "4"]
CONFIG: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 50257, "n_positions": 128, "n_embd": 64, "n_layer": 2,
    "n_head": 4,
}  # fmt: skip
MATRIX = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-15\t0
GPU1\tPHB\t X \t0-15\t0
"""


def server_file(old: str, new: str) -> Callable[[Path], str]:
    """Write the text of a good server with one place changed; give the path."""

    def write(folder: Path) -> str:
        text = hwmodels.server(BOX).to_toml()
        assert old in text
        return written(folder / "box.toml", text.replace(old, new, 1))

    return write


def config_file(**changes: Any) -> Callable[[Path], str]:
    """Write a config.json with some keys changed or (None) left out; give the path."""
    found = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    return lambda folder: written(folder / "config.json", json.dumps(found))


def text_file(name: str, text: str | bytes) -> Callable[[Path], str]:
    """Write a file; give its path."""
    return lambda folder: written(folder / name, text)


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


SERVER_FILES: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "broken toml": (server_file("[[gpu]]", "[[gpu]"), ("box.toml", "TOML")),
    "unknown field": (server_file("[[switch]]", "[[switch]]\nasc = true"), ("asc", "acs")),
    "wrong type": (server_file("cores = 18", 'cores = "18"'), ("cores",)),
    "negative bandwidth": (server_file('"38.4 GB/s"', '"-38.4 GB/s"'), ("-38.4",)),
    "zero bandwidth": (server_file('"38.4 GB/s"', '"0 GB/s"'), ("zero",)),
    "number without unit": (server_file('"38.4 GB/s"', "38.4"), ("unit", "GB/s")),
    "wrong unit": (server_file('"38.4 GB/s"', '"38.4 GiB"'), ("GiB", "GB/s")),
    "unconnected gpu": (
        lambda folder: written(
            folder / "box.toml",
            hwmodels.server(BOX).to_toml() + '\n[[gpu]]\nname = "gpu9"\nmodel = "gtx-1080-ti"\n',
        ),
        ("gpu9", "not connected"),
    ),
    "duplicate name": (server_file('name = "gpu1"', 'name = "gpu0"'), ("gpu0",)),
    "link to nowhere": (server_file('"gpu1", "sw0"', '"gpu1", "sw7"'), ("sw7", "sw0")),
    "unknown gpu model": (server_file('"gtx-1080-ti"', '"gtx-1080-it"'), ("gtx-1080-ti",)),
    "empty file": (text_file("box.toml", ""), ("box.toml",)),
    "not text": (text_file("box.toml", b"\xff\xfe\x00name"), ("box.toml", "UTF-8")),
    "missing file": (lambda folder: str(folder / "none.toml"), ("none.toml",)),
    "folder": (str, ("folder",)),
}

MODEL_FILES: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "broken json": (text_file("config.json", '{"model_type": '), ("config.json", "JSON")),
    "not an object": (text_file("config.json", "[1, 2]"), ("config.json",)),
    "empty file": (text_file("config.json", ""), ("config.json",)),
    "missing key": (config_file(n_embd=None), ("n_embd",)),
    "unknown model type": (config_file(model_type="gpt3"), ("gpt3", "gpt2")),
    "no model type": (text_file("config.json", '{"n_embd": 64}'), ("model_type", "format")),
    "negative size": (config_file(n_layer=-2), ("n_layer",)),
    "size of wrong type": (config_file(n_layer="two"), ("n_layer",)),
    "not text": (text_file("config.json", b"\xff\xfe\x00{"), ("config.json", "UTF-8")),
    "missing file": (lambda folder: str(folder / "none.json"), ("none.json",)),
    "folder": (lambda folder: f"{folder}/", ("directory",)),
}

OPTIONS: dict[str, Bad] = {
    "unknown server": Bad(run_with(server="dgx-a10"), ("dgx-a10", "dgx-a100")),
    "unknown model": Bad(run_with(model="gtp2-xl"), ("gtp2-xl", "gpt2-xl")),
    "unknown schedule": Bad(run_with(schedule="harmony-p"), ("harmony-p", "harmony-pp")),
    "unknown schedule to compare": Bad(
        [*COMPARE, "--schedule", "1f1b-pagr"],
        ("1f1b-pagr", "1f1b-pager"),
    ),
    "unknown schedule to show": Bad(["schedules", "gpip"], ("gpip", "gpipe")),
    "unknown server to show": Bad(["servers", "dgx-a10"], ("dgx-a10", "dgx-a100")),
    "unknown model to show": Bad(["models", "gtp2-xl"], ("gtp2-xl", "gpt2-xl")),
    "unknown gpu to show": Bad(["gpus", "rtx-409"], ("rtx-409", "rtx-4090")),
    "nothing to write as toml": Bad(["servers", "--toml"], ("name",)),
    "does not fit": Bad(run_with(schedule="dp", model="gpt2-40b"), ("gpu0",)),
    "minibatch of zero": Bad(run_with(minibatch="0"), ("minibatch", "0")),
    "minibatch not over gpus": Bad(
        run_with(schedule="harmony-dp", minibatch="6"), ("minibatch", "6", "4")
    ),
    "microbatch does not divide": Bad(run_with(microbatch="3"), ("microbatch", "3")),
    "microbatch divides nowhere": Bad(
        [*COMPARE, "--microbatch", "3", "--sequence", "128"],
        ("microbatch", "3"),
    ),
    "negative microbatch": Bad(run_with(microbatch="-1"), ("microbatch", "-1")),
    "negative sequence": Bad(run_with(sequence="-128"), ("sequence", "-128")),
    "unknown precision": Bad(run_with(precision="mixed-fp61"), ("mixed-fp61",)),
    "unknown optimizer": Bad(run_with(optimizer="adm"), ("adm", "adam")),
    "unknown knob": Bad([*run_with(), "--set", "packs=2"], ("packs", "pack")),
    "knob of wrong type": Bad([*run_with(), "--set", "pack=two"], ("pack", "two")),
    "knob with unknown word": Bad([*run_with(), "--set", "update=disk"], ("disk", "cpu")),
    "knob without value": Bad([*run_with(), "--set", "pack"], ("pack", "name=value")),
    "knob set twice": Bad([*run_with(), "--set", "pack=1", "--set", "pack=2"], ("pack", "1")),
    "picture of unknown kind": Bad([*run_with(), "--plot", "timeline.gif"], (".gif", ".png")),
    "picture in no folder": Bad([*run_with(), "--plot", "no/such/a.png"], ("no/such",)),
    "trace in no folder": Bad([*run_with(), "--trace", "no/such/a.json"], ("no/such",)),
    "trace of unknown kind": Bad([*run_with(), "--trace", "trace.txt"], ("trace.txt", ".json")),
    "page of unknown kind": Bad([*run_with(), "--html", "page.htm"], ("page.htm", ".html")),
    "not a number": Bad(run_with(minibatch="many"), ("--minibatch", "integer")),
    "missing option": Bad(run_with(server=None), ("--server",)),
    "unknown option": Bad([*run_with(), "--sever", BOX], ("--sever",)),
    "unknown command": Bad(["comprae"], ("comprae",)),
    "matrix without gpus": Bad(["topo", "-", "--gpu", "rtx-4090"], ("GPU0",), "no matrix here\n"),
    "empty matrix": Bad(["topo", "-", "--gpu", "rtx-4090"], ("GPU0",), ""),
    "matrix not square": Bad(
        ["topo", "-", "--gpu", "rtx-4090"], ("GPU1",), "\n".join(MATRIX.splitlines()[:2])
    ),
    "unknown path class": Bad(
        ["topo", "-", "--gpu", "rtx-4090"], ("PHX",), MATRIX.replace("PHB", "PHX")
    ),
    "matrix not symmetric": Bad(
        ["topo", "-", "--gpu", "rtx-4090"], ("GPU0", "GPU1"), MATRIX.replace("PHB", "PIX", 1)
    ),
    "gpu list of wrong length": Bad(
        ["topo", "-", *["--gpu", "rtx-4090"] * 3], ("2 GPUs", "3"), MATRIX
    ),
    "unknown gpu": Bad(["topo", "-", "--gpu", "rtx-409"], ("rtx-409", "rtx-4090"), MATRIX),
    "matrix file missing": Bad(["topo", "none.txt", "--gpu", "rtx-4090"], ("none.txt",)),
    "memory without unit": Bad(
        ["topo", "-", "--gpu", "rtx-4090", "--memory", "512"], ("512", "unit"), MATRIX
    ),
}


def refuse(commodious: Command, bad: Bad) -> None:
    """Check that the arguments are refused as they should be."""
    code, out, err = commodious(*bad.arguments, stdin=bad.stdin)
    assert code == 2
    assert out == ""
    assert err.startswith("commodious: ")
    assert err.count("\n") == 1
    assert err.rstrip("\n")[-1] in ".?"
    for word in bad.words:
        assert word.lower() in err.lower()


@pytest.mark.parametrize("bad", OPTIONS.values(), ids=OPTIONS.keys())
def test_bad_option(commodious: Command, bad: Bad) -> None:
    refuse(commodious, bad)


@pytest.mark.parametrize(("make", "words"), SERVER_FILES.values(), ids=SERVER_FILES.keys())
def test_bad_server_file(
    commodious: Command, tmp_path: Path, make: Callable[[Path], str], words: tuple[str, ...]
) -> None:
    refuse(commodious, Bad(["servers", make(tmp_path)], words))


@pytest.mark.parametrize(("make", "words"), MODEL_FILES.values(), ids=MODEL_FILES.keys())
def test_bad_model_file(
    commodious: Command, tmp_path: Path, make: Callable[[Path], str], words: tuple[str, ...]
) -> None:
    refuse(commodious, Bad(run_with(model=make(tmp_path), sequence=None), words))


def test_profile_refuses_options(commodious: Command, tmp_path: Path) -> None:
    """What a profile measured cannot be changed afterwards."""
    path = written(tmp_path / "profile.json", '{"format": "commodious-profile-1"}')
    refuse(commodious, Bad(run_with(model=path, sequence="64"), ("sequence",)))


def test_picture_path_is_a_folder(commodious: Command, tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    refuse(commodious, Bad([*run_with(), "--plot", str(tmp_path / "a.png")], ("directory",)))
