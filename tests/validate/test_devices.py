"""Logical devices: streams in order, marks, common starts, collectives, live bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
import torch

from hwmodels.errors import InvalidInput
from validate.devices import COLLECTIVES, Devices, devices
from validate.numa import Node, cpu_list, nodes, on_node, whole_machine

RANKS = 3


@pytest.fixture
def three() -> Iterator[Devices]:
    with closing(devices("cpu", RANKS)) as found:
        yield found


def test_names(three: Devices) -> None:
    assert three.gpus == ("gpu0", "gpu1", "gpu2")
    assert three.hosts == ("host0",)


def test_bytes_are_random_and_as_many_as_asked(three: Devices) -> None:
    made = three.allocate("gpu0", 1001)
    assert made.shape == (1001,)
    assert len(made.unique()) > 200


def test_work_of_a_stream_runs_in_order_and_beside_others(three: Devices) -> None:
    done: list[int] = []
    one, other = three.stream("gpu0"), three.copy_stream("host0", "gpu1")
    with closing(one), closing(other):
        first = one.mark()
        for number in range(100):
            one.run(partial(done.append, number))
        other.wait(one.mark())
        other.run(lambda: done.append(-1))
        last = one.mark()
        other.mark().wait()
        assert done == [*range(100), -1]
        assert last.seconds_since(first) > 0


def test_streams_wait_for_the_common_start(three: Devices) -> None:
    done: list[str] = []
    stream = three.stream("gpu0")
    with closing(stream):
        with three.together() as gate:
            stream.wait(gate)
            stream.run(lambda: done.append("stream"))
            done.append("caller")
        stream.mark().wait()
    assert done == ["caller", "stream"]


def test_an_error_reaches_whoever_waits(three: Devices) -> None:
    def fail() -> None:
        raise RuntimeError("lost a device")

    stream, other = three.stream("gpu0"), three.stream("gpu1")
    with closing(stream), closing(other):
        stream.run(fail)
        other.wait(stream.mark())
        with pytest.raises(RuntimeError, match="lost a device"):
            other.mark().wait()


def test_threads_end_and_those_of_torch_are_given_back() -> None:
    before, alive = torch.get_num_threads(), threading.active_count()
    with closing(devices("cpu")) as found:
        found.stream("gpu0").mark().wait()
        found.copy_stream("gpu0", "host0").mark().wait()
        assert threading.active_count() == alive + 2
    assert threading.active_count() == alive
    assert torch.get_num_threads() == before


def ranks_after(found: Devices, kind: str, length: int) -> list[list[int]]:
    """Buffers of every rank after a collective; rank r starts with 10^r everywhere."""
    buffers = [torch.full((length,), 10**rank) for rank in range(RANKS)]
    streams = [found.stream(gpu) for gpu in found.gpus]
    found.collective(kind, buffers, streams)
    for stream in streams:
        stream.mark().wait()
        stream.close()
    return [buffer.tolist() for buffer in buffers]


def test_collectives(three: Devices) -> None:
    after = {kind: ranks_after(three, kind, 3) for kind in COLLECTIVES}
    assert after["all_reduce"] == [[111] * 3] * 3
    assert after["reduce_scatter"] == [[111, 1, 1], [10, 111, 10], [100, 100, 111]]
    assert after["all_gather"] == [[1, 10, 100]] * 3
    assert after["broadcast"] == [[1] * 3] * 3


def test_collective_of_shards_that_differ_in_length(three: Devices) -> None:
    assert ranks_after(three, "all_reduce", 4) == [[111] * 4] * 3


def test_peak_counts_what_is_alive_at_once(three: Devices) -> None:
    x = torch.zeros(1000)

    def work() -> torch.Tensor:
        y = x + 1  # 4000 bytes
        y = (y + 1).view(10, 100)  # 4000 more, then the first 4000 go
        return y.add_(1).sum()  # in place and views take nothing; the sum 4

    assert three.peak("gpu0", work) == 8000


def test_wrong_devices_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be 'cpu' or 'cuda'"):
        devices("tpu")
    with pytest.raises(InvalidInput, match="gpus is 0; at least 1"):
        devices("cpu", 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what to do where there is no GPU")
def test_cuda_without_a_gpu_says_what_to_do() -> None:
    with pytest.raises(InvalidInput, match="sees no GPU; it needs an NVIDIA driver"):
        devices("cuda")


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInput, match=r"pip install 'commodious\[validate\]'"):
        devices("cpu")


def test_numa_nodes_cover_memory() -> None:
    found = nodes()
    assert all(node.cpus and node.memory > 0 for node in found)
    whole = whole_machine()
    assert 1 <= whole.cores <= len(whole.cpus)
    assert sum(node.memory for node in found) <= whole.memory * 1.2
    with on_node(Node(0, frozenset({10**6}), 1, 1)):  # a processor that is not there
        pass
    assert cpu_list("") == frozenset()
    assert cpu_list("0-2,8\n") == {0, 1, 2, 8}
