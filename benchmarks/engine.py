"""Operations a second that the engine replays, against a bare SimPy loop.

    python benchmarks/engine.py [--ops 10000 100000 1000000] [--repeat 3] [--case NAME] [--json]

Cases, all on a server of eight GPUs with two sockets and one uplink each:

in-step      every GPU swaps layers in and out through two slots; all are alike and meet at once
ring         the same, and each GPU hands its result to the next one; nothing happens at once
harmony-pp   a generated schedule of GPT-2 XL at sequence 128, one sample a microbatch

Contention, copy engines, memory ledger and records are on. *whole* is all that ``simulate`` needs
of the engine: making the schedule ready, the run, and the arrays of the records; *run* is SimPy's
loop alone. The bare loop is one process that waits for as many timeouts as there are operations,
measured between the repeats. Each size runs in a process of its own; memory is the growth of its
largest resident size, schedule included. Times are the best of the repeats, with the median.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from itertools import cycle, islice
from typing import Any, cast

import simpy

import hwmodels
import sim.engine
from hwmodels.compute import LayerWork, Work
from hwmodels.server import Server
from workloads.schedule import Grant, Op, Schedule, Tensor

SERVER = "pcie-4u-8x1080ti"
CASES = ("in-step", "ring", "harmony-pp")
LAYERS = 48
NBYTES = 60_000_000


def swapping(server: Server, count: int, *, ring: bool) -> Schedule:
    """About ``count`` operations: layers pass through two slots of every GPU."""
    gpus, ops, grants = server.gpus, list[Op](), list[Grant]()
    home = {gpu: server.host_of(gpu) for gpu in gpus}
    names = {gpu: (f"{gpu}.h2d", f"{gpu}.compute", f"{gpu}.d2h") for gpu in gpus}
    following = dict(zip(gpus, islice(cycle(gpus), 1, None)))  # noqa: B905
    tensors = [
        Tensor(i, "weight", f"W{i}", NBYTES * (4 + i % LAYERS % 5))
        for i in range(LAYERS * len(gpus))
    ]
    works = [
        Work((LayerWork(f"l{i}", "forward", 1, 1e11 * (3 + i % 7), 1e8, "fp32"),))
        for i in range(LAYERS)
    ]
    freed: dict[str, list[int]] = {gpu: [] for gpu in gpus}
    handed: dict[str, tuple[int, ...]] = dict.fromkeys(gpus, ())
    for step in range(count // ((4 if ring else 3) * len(gpus))):
        layer = step % LAYERS
        peers: dict[str, tuple[int, ...]] = dict.fromkeys(gpus, ())
        for number, gpu in enumerate(gpus):
            weight = tensors[number * LAYERS + layer]
            place, span = ((weight.id, gpu),), (layer, layer)
            h2d, compute, d2h = names[gpu]
            load, host = len(ops), home[gpu]
            room = freed[gpu][-2] if step > 1 else -1
            grants.append(Grant(load, gpu, room, weight.nbytes))
            ops += (
                Op(load, "copy", h2d, (room,) if room >= 0 else (), host, "swap_in", span,
                   nbytes=weight.nbytes, peer=gpu, reads=(weight.id,), allocs=place),
                Op(load + 1, "compute", compute, (*handed[gpu], load), gpu, "forward", span,
                   (0, 1), works[layer], reads=(weight.id,)),
                Op(load + 2, "copy", d2h, (load + 1,), gpu, "swap_out", span,
                   nbytes=weight.nbytes, peer=host, reads=(weight.id,), frees=place),
            )  # fmt: skip
            freed[gpu].append(load + 2)
            if ring:
                target = following[gpu]
                ops.append(
                    Op(load + 3, "copy", f"{gpu}>{target}", (load + 1,), gpu, "peer", span,
                       nbytes=NBYTES, peer=target)
                )  # fmt: skip
                peers[target] = (load + 3,)
        handed = peers
    on_host = tuple((tensor.id, home[gpus[tensor.id // LAYERS]]) for tensor in tensors)
    capacity = {place: server.memory(place) for place in (*gpus, *server.hosts)}
    return Schedule(
        "ring" if ring else "in-step", "none", tuple(ops), tuple(tensors), capacity, on_host,
        on_host, tuple(grants), minibatch=1, microbatch=1, num_layers=LAYERS,
    )  # fmt: skip


def generated(server: Server, count: int) -> Schedule:
    """About ``count`` operations of a generated schedule, by the size of the minibatch."""
    import workloads

    model = workloads.model("gpt2-xl", sequence=128)  # so that 1M operations fit the host
    step = len(server.gpus)

    def build(minibatch: int) -> Schedule:
        return workloads.schedule("harmony-pp", model, server, minibatch=minibatch, microbatch=1)

    low, high = (len(build(step * n).ops) for n in (1, 2))
    return build(step * max(1, 1 + round((count - low) / (high - low))))


def bare(count: int) -> float:
    """Seconds of a bare SimPy loop of ``count`` timeouts."""
    env = simpy.Environment()

    def wait() -> Any:
        for _ in range(count):
            yield env.timeout(1)

    env.process(wait())
    start = time.perf_counter()
    env.run()
    return time.perf_counter() - start


def measure(case: str, count: int, repeat: int) -> dict[str, Any]:
    """Build one schedule and replay it ``repeat`` times; microseconds per operation."""
    server = hwmodels.server(SERVER)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gc.disable()  # as the engine does; building should not pay for it either
    start = time.perf_counter()
    if case == "harmony-pp":
        schedule = generated(server, count)
    else:
        schedule = swapping(server, count, ring=case == "ring")
    built = time.perf_counter() - start
    ops = len(schedule.ops)
    whole: list[float] = []
    run: list[float] = []
    loop: list[float] = []
    inner = cast(Any, sim.engine)
    replay = inner._run

    def timed(*args: Any) -> Any:
        begin = time.perf_counter()
        records = replay(*args)
        run.append(time.perf_counter() - begin)
        return records

    inner._run = timed
    for _ in range(repeat):
        start = time.perf_counter()
        sim.engine.execute(schedule, server)
        whole.append(time.perf_counter() - start)
        if len(whole) == 1:  # what one replay needs, before others leave their arrays behind
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        loop.append(bare(ops))
    micro = 1e6 / ops
    return {
        "case": case,
        "ops": ops,
        "build": built * micro,
        "whole": min(whole) * micro,
        "whole_median": statistics.median(whole) * micro,
        "run": min(run) * micro,
        "bare": min(loop) * micro,
        "ops_per_second": round(ops / min(whole)),
        "ratio_whole": min(loop) / min(whole),
        "ratio_run": min(loop) / min(run),
        "bytes_per_op": round((after - before) * 1024 / ops),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark of the engine.")
    parser.add_argument("--ops", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help="measure one case in this process")
    args = parser.parse_args()
    cases = args.case or list(CASES)
    if args.here:
        print(json.dumps(measure(cases[0], args.ops[0], args.repeat)))
        return
    if not args.json:
        print(
            f"{'case':12}{'ops':>9}{'ops/s':>9}{'whole':>8}{'median':>8}{'run':>7}{'build':>8}"
            f"{'bare':>7}{'bare/whole':>12}{'bare/run':>10}{'bytes/op':>10}   (us per op)"
        )
    rows: list[dict[str, Any]] = []
    for case in cases:
        for count in args.ops:
            command = [sys.executable, __file__, "--here", "--case", case, "--ops", str(count)]
            command += ["--repeat", str(args.repeat)]
            row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            rows.append(row)
            if not args.json:
                print(
                    f"{row['case']:12}{row['ops']:9}{row['ops_per_second']:9}{row['whole']:8.2f}"
                    f"{row['whole_median']:8.2f}{row['run']:7.2f}{row['build']:8.2f}"
                    f"{row['bare']:7.2f}{row['ratio_whole']:12.2f}{row['ratio_run']:10.2f}"
                    f"{row['bytes_per_op']:10}",
                    flush=True,
                )
    if args.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
