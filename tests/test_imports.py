"""Importing is cheap: what is heavy is imported where it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"pandas", "matplotlib", "pydantic", "networkx", "typer", "rich", "scipy", "IPython", "torch"}


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``statement``."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize("package", ["hwmodels", "workloads", "sim"])
def test_import_leaves_heavy_libraries_alone(package: str) -> None:
    assert loaded(f"import {package}") & HEAVY == set()


def test_command_line_starts_without_tables_and_pictures() -> None:
    """``commodious --help`` needs typer (which may use rich) and nothing else that is heavy."""
    assert loaded("import sim.cli") & HEAVY <= {"typer", "rich"}


def test_public_names_exist_and_are_listed() -> None:
    import hwmodels
    import sim
    import workloads

    for package in (hwmodels, workloads, sim):
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)
