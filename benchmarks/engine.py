"""Speed of the engine: operations a second against a bare SimPy loop.

Generated schedules of GPT-2 XL on the 4x GTX 1080 Ti server, iterations laid end to end until the
wanted number of operations is reached. Contention, copy engines, the memory ledger and the records
are on. A bare SimPy loop is one process that waits for as many timeouts as there are operations;
it runs in the same process, in turn with the replays.

Columns, in microseconds an operation: ``simulate`` (everything: preparing, replaying, records),
``build`` (planning one iteration and laying it end to end), ``plan`` (planning, for each operation
of the one iteration), ``bare``; then ``bare/sim``, the ratio of the last to the first, and bytes of
memory an operation for schedule, run and records.

    python benchmarks/engine.py [--ops 10000 100000 1000000] [--repeat 3] [--json]
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
from typing import Any

import simpy

import hwmodels
import sim.engine
import workloads

SERVER, MODEL, MINIBATCH = "pcie-4u-4x1080ti", "gpt2-xl", 4
CASES = ("1f1b-recompute", "dp-pager-recompute", "harmony-dp", "harmony-pp")


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


def used() -> int:
    """Most bytes that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(case: str, count: int, repeat: int) -> dict[str, Any]:
    """Build one schedule and replay it ``repeat`` times."""
    server, model = hwmodels.server(SERVER), workloads.model(MODEL)
    workloads.schedule(case, model, server, minibatch=MINIBATCH)  # imports and caches
    gc.collect()
    gc.disable()  # as the engine does; building and the bare loop should not pay for it either
    before = used()
    start = time.perf_counter()
    one = workloads.schedule(case, model, server, minibatch=MINIBATCH)
    planned = time.perf_counter() - start
    schedule = workloads.repeat(one, max(1, round(count / len(one.ops))))
    built = time.perf_counter() - start
    ops = len(schedule.ops)
    replays: list[float] = []
    loops: list[float] = []
    memory = 0
    for _ in range(repeat):
        start = time.perf_counter()
        sim.engine.execute(schedule, server)
        replays.append(time.perf_counter() - start)
        memory = memory or used() - before  # of one replay, before others leave their arrays
        loops.append(bare(ops))
    micro = 1e6 / ops
    return {
        "case": case,
        "ops": ops,
        "ops_per_second": round(ops / min(replays)),
        "simulate": min(replays) * micro,
        "median": statistics.median(replays) * micro,
        "build": built * micro,
        "plan": planned * 1e6 / len(one.ops),
        "bare": min(loops) * micro,
        "ratio": min(loops) / min(replays),
        "bytes_per_op": round(memory / ops),
    }


def main() -> None:
    """Measure every case and size in a process of its own and print a line for each."""
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
            f"{'case':19}{'ops':>9}{'ops/s':>9}{'simulate':>10}{'median':>8}{'build':>8}"
            f"{'plan':>8}{'bare':>7}{'bare/sim':>10}{'bytes/op':>10}"
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
                    f"{row['case']:19}{row['ops']:9}{row['ops_per_second']:9}"
                    f"{row['simulate']:10.2f}{row['median']:8.2f}{row['build']:8.2f}"
                    f"{row['plan']:8.2f}{row['bare']:7.2f}{row['ratio']:10.2f}"
                    f"{row['bytes_per_op']:10}",
                    flush=True,
                )
    if args.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
