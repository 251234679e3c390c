from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hwmodels as hw
from hwmodels.errors import CommodiousError, InvalidInput, UnknownName

Make = Callable[..., hw.Server]

LINK_A = '[[link]]\nname = "la"\nends = ["a", "sw"]\nbandwidth = "13 GB/s"\nlatency = "1 us"\n'


@pytest.mark.parametrize("name", hw.servers())
def test_named_servers_come_back_equal(name: str, tmp_path: Path) -> None:
    server = hw.server(name)
    path = tmp_path / "copy.toml"
    path.write_text(server.to_toml(), encoding="utf-8")
    assert hw.load(path) == server


def test_own_gpus_and_limits_come_back_equal(make: Make, tmp_path: Path) -> None:
    box = make(
        ('name = "box"', 'name = "box"\ndescription = "a \\"quoted\\" \\\\ box\\u007f"'),
        ('name = "up"', 'name = "up"\nduplex = "15.3 GB/s"'),
        ('host = "mem0"', 'host = "mem0"\nmemory = "9.7 GB/s"'),
        ('name = "a"\nmodel = "toy"', 'name = "a"\nmodel = "toy"\nh2d = "9 GB/s"'),
        ('pcie = "gen3 x16"', 'pcie = "gen3 x16"\nnvlink = "gen2 x2"\nunverified = ["flops"]'),
        more='[sources]\n"odd key" = "someone"\n',
    )
    path = tmp_path / "copy.toml"
    path.write_text(box.to_toml(), encoding="utf-8")
    assert hw.load(path) == box


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([("[[host]]", "[[host")], "is not valid TOML"),
        (
            [('bandwidth = "12 GB/s"', 'bandwith = "12 GB/s"')],
            "unknown field 'bandwith' in link 'up'; did you mean 'bandwidth'?",
        ),
        ([('name = "box"', 'name = "box"\nspeed = 3')], "unknown field 'speed'"),
        (
            [('ends = ["sw", "r0"]\n', "")],
            "field 'ends' is missing in link 'up'; add it.",
        ),
        (
            [('bandwidth = "12 GB/s"', "bandwidth = 12")],
            "field 'bandwidth' in link 'up': 12 is not a bandwidth; write a bandwidth with its",
        ),
        ([('bandwidth = "12 GB/s"', 'bandwidth = "-12 GB/s"')], "must be finite and not negative"),
        ([('bandwidth = "12 GB/s"', 'bandwidth = "0 GB/s"')], "up.bandwidth is 0"),
        ([('bandwidth = "12 GB/s"\n', "")], "link 'up' has no capacity; give pcie ="),
        ([("cores = 8", "cores = 0")], "field 'cores' in host 'mem0'"),
        ([("cores = 8", 'cores = "8"')], "field 'cores' in host 'mem0'"),
        ([('ends = ["sw", "r0"]', 'ends = ["sw"]')], "field 'ends' in link 'up'"),
        ([("compute_efficiency = 0.5", "compute_efficiency = 1.5")], "in GPU model 'toy'"),
        ([('reserve = "1 GiB"', 'reserve = "9 GiB"')], "reserves all of its memory"),
        ([('fp32 = "10', 'fp31 = "10')], "unknown number format 'fp31'"),
        ([('pcie = "gen3 x16"', 'pcie = "gen8 x16"')], "generation 8 does not exist"),
        ([('peer = "root"', 'peer = "yes"')], "field 'peer' in GPU model 'toy'"),
        ([('name = "b"\nmodel', 'name = "a"\nmodel')], "2 parts are named 'a'"),
        ([('name = "lb"', 'name = "la"')], "2 links are named 'la'"),
        ([('name = "b"\nmodel', 'name = "b>"\nmodel')], "has a"),
        ([('ends = ["a", "sw"]', 'ends = ["a", "swx"]')], "ends at the unknown part 'swx'"),
        ([('ends = ["a", "sw"]', 'ends = ["a", "a"]')], "connects 'a' with itself"),
        ([('ends = ["a", "sw"]', 'ends = ["a", "mem0"]')], "cannot connect gpu 'a' with host"),
        ([('ends = ["a", "sw"]', 'ends = ["b", "sw"]')], "links 'la' and 'lb' both connect"),
        ([(LINK_A, "")], "gpu 'a' is not connected to any root complex"),
        ([('host = "mem1"', 'host = "mem2"')], "belongs to the unknown NUMA node 'mem2'"),
        ([('ends = ["s0", "s1"]', 'ends = ["a", "r1"]')], "two root complexes"),
    ],
)
def test_one_sentence_for_each_mistake(
    make: Make, changes: list[tuple[str, str]], says: str
) -> None:
    with pytest.raises(CommodiousError) as error:
        make(*changes)
    message = str(error.value)
    assert says in message
    assert message[-1] in ".?"
    assert "\n" not in message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[[link]]\nname = "x"\nends = ["sw", "r1"]\nbandwidth = "1 GB/s"\n', "two root complexes"),
        (
            '[[switch]]\nname = "s2"\n[[switch]]\nname = "s3"\n'
            '[[link]]\nname = "x"\nends = ["sw", "s2"]\nbandwidth = "1 GB/s"\n'
            '[[link]]\nname = "y"\nends = ["s2", "s3"]\nbandwidth = "1 GB/s"\n'
            '[[link]]\nname = "z"\nends = ["s3", "sw"]\nbandwidth = "1 GB/s"\n',
            "PCIe links form a cycle",
        ),
        (
            '[[switch]]\nname = "s2"\n[[switch]]\nname = "s3"\n'
            '[[link]]\nname = "x"\nends = ["s2", "s3"]\nbandwidth = "1 GB/s"\n',
            "switch 's2' is not connected to any root complex",
        ),
        (
            '[[switch]]\nname = "s2"\n'
            '[[link]]\nname = "x"\nends = ["a", "s2"]\nbandwidth = "1 GB/s"\n',
            "'a' has more than one PCIe link",
        ),
        (
            '[[link]]\nname = "x"\nends = ["a", "c"]\npcie = "gen3 x16"\n',
            "described as pcie but connects 'a' with 'c', which is nvlink",
        ),
        (
            '[[link]]\nname = "x"\nends = ["a", "c"]\npcie = "gen3 x16"\nnvlink = "gen2 x1"\n',
            "both PCIe and NVLink",
        ),
        (
            '[[host]]\nname = "m2"\nsocket = "s2"\nmemory = "1 GiB"\ndram = "1 GB/s"\ncores = 1\n'
            'update = "1 Gparams/s"\nupdate_process = "1 Gparams/s"\n',
            "socket 's2' is not connected to socket 's0'",
        ),
    ],
)
def test_impossible_graphs(make: Make, more: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        make(more=more)


def test_servers_need_gpus_and_hosts(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text('name = "empty"\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match="has no GPU; list at least one"):
        hw.load(path)
    path.write_text('name = "empty"\n[[gpu]]\nname = "g"\nmodel = "rtx-4090"\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match="has no host memory"):
        hw.load(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"Cannot read .*no such file"):
        hw.load(tmp_path / "missing.toml")
    with pytest.raises(InvalidInput, match="it is a folder"):
        hw.load(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not text in UTF-8"):
        hw.load(binary)


def test_unknown_names_suggest_the_nearest(make: Make) -> None:
    with pytest.raises(UnknownName, match="Server 'dgx1' does not exist; did you mean 'dgx-1'"):
        hw.server("dgx1")
    with pytest.raises(UnknownName, match="did you mean 'rtx-4090'"):
        hw.gpu("rtx4090")
    with pytest.raises(UnknownName, match="GPU 'toyy' does not exist"):
        make(('name = "a"\nmodel = "toy"', 'name = "a"\nmodel = "toyy"'))
