"""A small server that the tests change line by line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import hwmodels as hw

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

BOX = """
name = "box"
host_latency = "2 us"

[models.toy]
memory = "8 GiB"
reserve = "1 GiB"
bandwidth = "500 GB/s"
flops = { fp32 = "10 TFLOP/s" }
pcie = "gen3 x16"
copy_engines = 2
peer = "root"
launch_overhead = "5 us"
compute_efficiency = 0.5
memory_efficiency = 0.8

[[gpu]]
name = "a"
model = "toy"

[[gpu]]
name = "b"
model = "toy"

[[gpu]]
name = "c"
model = "toy"

[[host]]
name = "mem0"
socket = "s0"
memory = "64 GiB"
dram = "50 GB/s"
cores = 8
update = "2 Gparams/s"
update_process = "1 Gparams/s"

[[host]]
name = "mem1"
socket = "s1"
memory = "32 GiB"
dram = "40 GB/s"
cores = 8
update = "2 Gparams/s"
update_process = "1 Gparams/s"

[[root]]
name = "r0"
host = "mem0"

[[root]]
name = "r1"
host = "mem1"

[[switch]]
name = "sw"

[[nvme]]
name = "disk"
memory = "1 TB"
read = "3 GB/s"
write = "2 GB/s"

[[link]]
name = "up"
ends = ["sw", "r0"]
bandwidth = "12 GB/s"
latency = "1 us"

[[link]]
name = "la"
ends = ["a", "sw"]
bandwidth = "13 GB/s"
latency = "1 us"

[[link]]
name = "lb"
ends = ["b", "sw"]
bandwidth = "13 GB/s"
latency = "1 us"

[[link]]
name = "lc"
ends = ["c", "r1"]
bandwidth = "13 GB/s"
latency = "1 us"

[[link]]
name = "ld"
ends = ["disk", "r1"]
bandwidth = "4 GB/s"
latency = "1 us"

[[link]]
name = "sockets"
ends = ["s0", "s1"]
bandwidth = "20 GB/s"
latency = "1 us"
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., hw.Server]:
    """Load the box after replacing texts: ``make(("old", "new"), ...)``; each must occur."""

    def build(*changes: tuple[str, str], more: str = "") -> hw.Server:
        text = BOX + more
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "box.toml"
        path.write_text(text, encoding="utf-8")
        return hw.load(path)

    return build
