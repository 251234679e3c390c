"""A server and a schedule small enough to replay with pencil and paper.

Two GPUs hang on a switch by 3 GB/s links; its uplink carries 4 GB/s. No latencies. A GPU does
1 TFLOP/s, all cores 1 Gparam/s, one process half of it.

    op                                   s      what limits it
    0  host0 to gpu0, weights, 12 GB   0- 6     half of the uplink
    1  host0 to gpu1, weights, 12 GB   0- 6     the other half
    2  gpu0 forward, 2 TFLOP           6- 8
    3  gpu0 to gpu1, activation, 3 GB  8- 9     links of the GPUs
    4  gpu1 backward, 3 TFLOP          9-12
    5  gpu1 to host0, gradient, 12 GB 12-16     link of gpu1
    6  free of the activation on gpu1 at 12
    7  host0 update, 28 GB of memory  16-18     one process
"""

from __future__ import annotations

from hwmodels.compute import LayerWork, Work
from hwmodels.read import parts_from_text
from hwmodels.server import Server
from workloads.schedule import Op, Schedule, Tensor

GB = 10**9

BOX = """
name = "box"
host_latency = "0 s"

[models.toy]
memory = "65 GB"
reserve = "1 GB"
bandwidth = "1000 GB/s"
flops = { fp32 = "1 TFLOP/s" }
pcie = "gen3 x16"
copy_engines = 2
peer = "server"
launch_overhead = "0 s"
compute_efficiency = 1.0
memory_efficiency = 1.0

[[host]]
name = "host0"
socket = "socket0"
memory = "100 GB"
dram = "100 GB/s"
cores = 4
update = "1 Gparams/s"
update_process = "0.5 Gparams/s"

[[root]]
name = "root0"
host = "host0"

[[switch]]
name = "sw0"

[[gpu]]
name = "gpu0"
model = "toy"

[[gpu]]
name = "gpu1"
model = "toy"

[[link]]
name = "uplink0"
ends = ["sw0", "root0"]
bandwidth = "4 GB/s"
latency = "0 s"

[[link]]
name = "pcie0"
ends = ["gpu0", "sw0"]
bandwidth = "3 GB/s"
latency = "0 s"

[[link]]
name = "pcie1"
ends = ["gpu1", "sw0"]
bandwidth = "3 GB/s"
latency = "0 s"
"""


def box(text: str = BOX) -> Server:
    """Server of the case, or of a changed text."""

    def unknown(name: str) -> None:
        raise AssertionError(name)

    return Server(parts_from_text(text, "box", unknown))  # pyright: ignore[reportArgumentType]


def work(teraflops: float, phase: str = "forward") -> Work:
    """Work of so many seconds."""
    return Work((LayerWork("l", phase, 1, teraflops * 1e12, 0.0, "fp32"),))  # pyright: ignore


W0, W1, X, G = range(4)
TENSORS = (
    Tensor(W0, "weight", "W[a]", 12 * GB),
    Tensor(W1, "weight", "W[b]", 12 * GB),
    Tensor(X, "activation", "X[a]", 3 * GB),
    Tensor(G, "gradient", "dW[b]", 12 * GB),
)


def plan() -> Schedule:
    """Schedule of the case."""
    ops = (
        Op(0, "copy", "gpu0.h2d", (), "host0", "swap_in", nbytes=12 * GB, peer="gpu0",
           reads=(W0,), allocs=((W0, "gpu0"),)),
        Op(1, "copy", "gpu1.h2d", (), "host0", "swap_in", nbytes=12 * GB, peer="gpu1",
           reads=(W1,), allocs=((W1, "gpu1"),)),
        Op(2, "compute", "gpu0.compute", (0,), "gpu0", "forward", (0, 0), (0, 2), work(2),
           reads=(W0,), writes=(X,), allocs=((X, "gpu0"),), frees=((W0, "gpu0"),)),
        Op(3, "copy", "gpu0>gpu1", (2,), "gpu0", "peer", nbytes=3 * GB, peer="gpu1",
           reads=(X,), allocs=((X, "gpu1"),), frees=((X, "gpu0"),)),
        Op(4, "compute", "gpu1.compute", (1, 3), "gpu1", "backward", (1, 1), (0, 2),
           work(3, "backward"), reads=(W1, X), writes=(G,), allocs=((G, "gpu1"),),
           frees=((W1, "gpu1"),)),
        Op(5, "copy", "gpu1.d2h", (4,), "gpu1", "swap_out", nbytes=12 * GB, peer="host0",
           reads=(G,), allocs=((G, "host0"),), frees=((G, "gpu1"),)),
        Op(6, "free", "", (4,), "gpu1", "free", frees=((X, "gpu1"),)),
        Op(7, "host", "host0.gpu1", (5,), "host0", "update", (1, 1), nbytes=28 * GB,
           reads=(W1, G), writes=(W1,), frees=((G, "host0"),)),
    )  # fmt: skip
    return Schedule(
        name="hand", model="toy", ops=ops, tensors=TENSORS,
        capacity={"gpu0": 64 * GB, "gpu1": 64 * GB, "host0": 100 * GB},
        initial=((W0, "host0"), (W1, "host0")), final=((W0, "host0"), (W1, "host0")),
        grants=(), minibatch=2, microbatch=1, num_layers=2, tokens=5,
    )  # fmt: skip
