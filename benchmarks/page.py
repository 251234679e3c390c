"""Speed of the page of a run: how long it takes to make, how large it is, how fast it draws.

One iteration of GPT-2 XL under Harmony-PP on the 4x GTX 1080 Ti server, laid end to end until the
wanted number of operations is reached. Columns: ``make``, seconds of ``run.to_html()``; ``size`` of
the file in MB; and in a headless Chromium with a window of 1400 x 900 pixels, without a GPU:
``open``, seconds until the page can be used, and milliseconds of a frame, median of 15: ``all`` of
the run, the same with its critical path (``path``), and 1 % of it (``part``). Without a Chromium
these are left out.

    python benchmarks/page.py [--ops 1000 20000 200000]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import hwmodels
import sim
import workloads

SERVER, MODEL, SCHEDULE, MINIBATCH = "pcie-4u-4x1080ti", "gpt2-xl", "harmony-pp", 64
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MEASURE = """<script>
// reading a pixel back waits until the frame is drawn
const frame = () => {
  const begin = performance.now();
  render();
  $("canvas").getContext("2d").getImageData(0, 0, 1, 1);
  return performance.now() - begin;
};
const median = () => Array.from({ length: 15 }, frame).sort((a, b) => a - b)[7].toFixed(1);
ready.then(() => {
  const open = (performance.now() / 1000).toFixed(1), all = median();
  state.critical = true;
  const path = median();
  state.critical = false;
  state.view = { from: 0.3 * state.run.finish, to: 0.31 * state.run.finish };
  console.log(`measured:${open} ${all} ${path} ${median()}:`);
});
</script>"""


def drawn(page: str, browser: str) -> list[str]:
    """Seconds to open the page and milliseconds of its frames, as text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page + MEASURE, encoding="utf-8")
        command = [
            browser, "--headless", "--disable-gpu", "--window-size=1400,900",
            "--enable-logging=stderr", f"--user-data-dir={folder}/profile", file.as_uri(),
        ]  # fmt: skip
        if os.geteuid() == 0:  # its sandbox refuses to work for root
            command.insert(1, "--no-sandbox")
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            said = next((line for line in process.stderr if "measured:" in line), "")
            process.terminate()
        return said.split("measured:")[1].split(":")[0].split()


def main() -> None:
    """Print a line for each number of operations."""
    parser = argparse.ArgumentParser(description="Benchmark of the page of a run.")
    parser.add_argument("--ops", type=int, nargs="+", default=[1000, 20_000, 200_000])
    args = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    server, model = hwmodels.server(SERVER), workloads.model(MODEL)
    one = workloads.schedule(SCHEDULE, model, server, minibatch=MINIBATCH)
    heads = ("ops", "make", "size", *(("open", "all", "path", "part") if browser else ()))
    print("".join(f"{head:>9}" for head in heads))
    for count in args.ops:
        plan = workloads.repeat(one, max(1, round(count / len(one.ops))))
        run = sim.simulate(plan, server)
        begin = time.perf_counter()
        page = run.to_html()
        assert isinstance(page, str)
        cells = [str(len(plan.ops)), f"{time.perf_counter() - begin:.2f}", f"{len(page) / 1e6:.2f}"]
        cells += drawn(page, browser) if browser else []
        print("".join(f"{cell:>9}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
