"""Every command and cell of the README works as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MATRIX = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-15\t0\nGPU1\tPHB\t X \t0-15\t0\n"
)


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder that has the repository's files at their place and an ``nvidia-smi``."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\ncat << 'END'\n{MATRIX}END\n")
    (programs / "nvidia-smi").chmod(0o755)
    return tmp_path


def call(arguments: list[str], folder: Path) -> str:
    """Output of a program that must succeed, with the installed command on its path."""
    programs = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        arguments, cwd=folder, env={**os.environ, "PATH": os.pathsep.join(programs)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return done.stdout


@pytest.mark.parametrize("block", blocks("sh"))
def test_shell_block(block: str, folder: Path) -> None:
    call(["bash", "-euo", "pipefail", "-c", block], folder)
    for name in re.findall(r"\S+\.(?:png|json|toml|html)\b", block):
        made = folder / name
        assert made.stat().st_size > 0


def test_python_blocks(folder: Path) -> None:
    found = blocks("python")
    assert found
    call([sys.executable, "-c", "\n".join(found)], folder)
    assert (folder / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_every_file_it_mentions_exists() -> None:
    for name in re.findall(r"\]\(((?!http)[^)]+)\)", README):
        assert (ROOT / name).exists()


def test_every_command_is_shown() -> None:
    shown = set(re.findall(r"commodious (\w+)", " ".join(blocks("sh"))))
    assert shown == {"run", "compare", "servers", "models", "schedules", "gpus", "topo", "study"}
