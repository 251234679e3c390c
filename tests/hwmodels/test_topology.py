"""Matrices typed for these tests, one in each layout that nvidia-smi prints."""

from __future__ import annotations

import pytest

import hwmodels as hw
from hwmodels.errors import CommodiousError
from hwmodels.matrix import cores, read_matrix

LEGEND = """
Legend:

  X    = Self
  SYS  = across the interconnect between NUMA nodes
  NV#  = bonded NVLinks
"""

TABS = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPIX\tPXB\tSYS\t0-7,16-23\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tPXB\tSYS\t0-7,16-23\t0\t\tN/A\n"
    "GPU2\tPXB\tPXB\t X \tSYS\t0-7,16-23\t0\t\tN/A\n"
    "GPU3\tSYS\tSYS\tSYS\t X \t8-15,24-31\t1\t\tN/A\n" + LEGEND
)

SPACES = """
$ nvidia-smi topo -m
        GPU0    GPU1    GPU2    CPU Affinity   NUMA Affinity   GPU NUMA ID
GPU0     X      PHB     NODE    0-15           0               N/A
GPU1    PHB      X      NODE    0-15           0               N/A
GPU2    NODE    NODE     X      0-15           0               N/A
"""

CARDS = (
    "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\n"
    "GPU0\tX\tNV2\tPIX\tSYS\t0-9\n"
    "GPU1\tNV2\tX\tPIX\tSYS\t0-9\n"
    "mlx5_0\tPIX\tPIX\tX\tSYS\t\n"
    "mlx5_1\tSYS\tSYS\tSYS\tX\t\n"
)

NO_PEER = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNODE\t0-15\t0\t\tN/A\n"
    "GPU1\tNODE\t X \t0-15\t0\t\tN/A\n"
    + LEGEND
    + "\n \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tNS\tX\n"
)

INDENTED = """
    \tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
    GPU0\t X \tSYS\t0-47\t0
    GPU1\tSYS\t X \t0-47\t0

    Legend:
      X    = Self
"""

ONE = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-19\t0\t\tN/A\n"


def shape(server: hw.Server) -> dict[str, tuple[str, ...]]:
    """Way up of every GPU."""
    return {g: server._router.chain(g) for g in server.gpus}


def test_switches_and_cascades_with_tabs() -> None:
    box = hw.from_topology(TABS, "gtx-1080-ti", memory="64 GiB", name="mine")
    assert box.name == "mine"
    # GPU2 is more than one bridge away from the pair: the pair has a switch below the common one.
    assert shape(box) == {
        "gpu0": ("gpu0", "sw1", "sw0", "root0"),
        "gpu1": ("gpu1", "sw1", "sw0", "root0"),
        "gpu2": ("gpu2", "sw0", "root0"),
        "gpu3": ("gpu3", "root1"),
    }
    assert box.hosts == ("host0", "host1")
    assert [box.host_of(g) for g in box.gpus] == ["host0", "host0", "host0", "host1"]
    assert box.memory("host1") == 32 * 2**30
    assert [host.cores for host in box.parts.hosts] == [8, 8]
    assert box.route("gpu0", "gpu1").usage == (("gpu0>sw1", 1.0), ("sw1>gpu1", 1.0))
    assert box.route("gpu0", "gpu2").kind == "pcie"
    assert box.route("gpu0", "gpu3").kind == "staged"


def test_host_bridges_with_spaces_and_a_prompt() -> None:
    box = hw.from_topology(SPACES, ["rtx-4090", "rtx-4090", "rtx-5090"])
    assert shape(box) == {
        "gpu0": ("gpu0", "root0"),
        "gpu1": ("gpu1", "root0"),
        "gpu2": ("gpu2", "root1"),
    }
    assert box.hosts == ("host0",)
    assert box.gpu("gpu2").name == "rtx-5090"
    assert str(box.link("pcie0").width) == "gen4 x16"
    assert str(box.link("pcie2").width) == "gen5 x16"
    assert "host0.memory" in box.parts.unverified


def test_cards_show_the_switch_that_nvlink_hides() -> None:
    box = hw.from_topology(CARDS, "v100-sxm2-32gb")
    assert shape(box) == {"gpu0": ("gpu0", "sw0", "root0"), "gpu1": ("gpu1", "sw0", "root0")}
    assert box.route("gpu0", "gpu1").kind == "nvlink"
    assert box.resources["gpu0>gpu1"] == 2 * box.gpu("gpu0").nvlink_bandwidth


def test_peer_matrix_colours_and_legend() -> None:
    box = hw.from_topology(NO_PEER, "rtx-a6000")
    assert box.parts.peer == "none"
    assert box.route("gpu0", "gpu1").kind == "staged"
    assert hw.from_topology(SPACES, "rtx-a6000").parts.peer is None


def test_virtual_machine_that_hides_everything() -> None:
    box = hw.from_topology(INDENTED, "rtx-4090")
    assert shape(box) == {"gpu0": ("gpu0", "root0"), "gpu1": ("gpu1", "root1")}
    assert box.hosts == ("host0",)


def test_one_gpu() -> None:
    box = hw.from_topology(ONE, "rtx-4090", pcie="gen3 x8", dram="50 GB/s", memory="32 GiB")
    assert box.gpus == ("gpu0",)
    assert str(box.link("pcie0").width) == "gen3 x8"
    assert box.parts.unverified == ("host0.update",)
    assert box.describe()["peer copies"] == "none (one GPU)"


def test_more_links_than_a_gpu_has_mean_nvswitch() -> None:
    names = [f"GPU{i}" for i in range(4)]
    rows = ["\t".join([a, *("X" if a == b else "NV12" for b in names)]) for a in names]
    box = hw.from_topology("\t".join(["", *names]) + "\n" + "\n".join(rows), "a100-sxm4-40gb")
    assert box.route("gpu0", "gpu3").usage == (("gpu0>nvswitch", 1.0), ("nvswitch>gpu3", 1.0))
    # Nothing shows where these GPUs lie in the PCIe tree, and that is said.
    assert {"pcie0", "pcie3"} <= set(box.parts.unverified)


def test_nvswitch_needs_gpus_with_that_many_links() -> None:
    names = [f"GPU{i}" for i in range(4)]
    rows = ["\t".join([a, *("X" if a == b else "NV12" for b in names)]) for a in names]
    text = "\t".join(["", *names]) + "\n" + "\n".join(rows)
    with pytest.raises(CommodiousError, match="12 NVLinks of GPU0, but rtx-3090 has 4; name the"):
        hw.from_topology(text, "rtx-3090")


def test_written_and_read_back(tmp_path) -> None:
    box = hw.from_topology(TABS, "gtx-1080-ti")
    path = tmp_path / "box.toml"
    path.write_text(box.to_toml(), encoding="utf-8")
    assert hw.load(path) == box


@pytest.mark.parametrize(
    ("affinity", "count"), [("0-19", 20), ("0-35,72-107", 36), ("0,2,4", 3), ("0-3,8-9", 6)]
)
def test_cores_of_an_affinity(affinity: str, count: int) -> None:
    assert cores(affinity) == count


def test_old_drivers_call_sys_soc() -> None:
    assert read_matrix(INDENTED.replace("SYS", "SOC")).classes[("GPU0", "GPU1")] == "SYS"


@pytest.mark.parametrize(
    ("text", "gpu", "says"),
    [
        ("nothing here", "rtx-4090", "no line starts the columns"),
        (ONE.replace(" X ", " Y "), "rtx-4090", "column GPU0 says 'Y'"),
        (TABS.replace("GPU3\tSYS", "GPUX\tSYS"), "rtx-4090", "no such row"),
        ("\tGPU0\tGPU1\nGPU0\tX\nGPU1\tSYS\tX\n", "rtx-4090", "1 entries for 2 columns"),
        (INDENTED.replace("X \tSYS", "X \tPIX"), "rtx-4090", "GPU0 to GPU1 is PIX but"),
        (INDENTED.replace("X \tSYS", "X \tX"), "rtx-4090", "X marks the same device"),
        (TABS, ["rtx-4090"], "4 GPUs but 1 GPU models"),
        (TABS, "rtx-4091", "did you mean 'rtx-4090'"),
        (CARDS, "rtx-4090", "rtx-4090 has none; name the right GPU"),
    ],
)
def test_one_sentence_for_each_mistake(text: str, gpu: str | list[str], says: str) -> None:
    with pytest.raises(CommodiousError, match=says) as error:
        hw.from_topology(text, gpu)
    assert "\n" not in str(error.value)


def test_values_need_units() -> None:
    with pytest.raises(CommodiousError, match="memory: '64' has no unit"):
        hw.from_topology(ONE, "rtx-4090", memory="64")
