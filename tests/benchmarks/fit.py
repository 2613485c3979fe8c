"""How much faster a program is with `backends run --fit` under a CPU quota.

    python tests/benchmarks/fit.py --torch PYTHON_WITH_TORCH [--quota 1] [--rounds 5]

The program multiplies a vector by the weights of 24 layers, as a language model does for each token. It
runs in a control group of its own with a CPU quota, in turn as it is and behind `backends run --fit`. Needs
root and a hierarchy of control groups that may be written. Medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import time, torch
layers = [torch.nn.Linear(1024, 1024) for _ in range(24)]
def token(values):
    for layer in layers:
        values = torch.nn.functional.gelu(layer(values))
with torch.no_grad():
    token(torch.rand(1, 1024))
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 3:
        token(torch.rand(1, 1024))
        count += 1
print(count / (time.perf_counter() - start))
"""
NAME = "mlbackends-fit"


def limited(quota: float) -> Path:
    """Make a control group with a quota, and return its list of processes."""
    old = Path("/sys/fs/cgroup/cpu") / NAME
    group = old if old.parent.is_dir() else Path("/sys/fs/cgroup") / NAME
    group.mkdir(exist_ok=True)
    if group == old:
        (group / "cpu.cfs_quota_us").write_text(str(int(quota * 100_000)))
    else:
        (group / "cpu.max").write_text(f"{int(quota * 100_000)} 100000")
    return group / "cgroup.procs"


def main() -> None:
    """Measure and print the two medians and their ratio."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--torch", required=True, help="an interpreter that has torch")
    options.add_argument("--quota", type=float, default=1)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    processes = limited(chosen.quota)

    def speed(*before: str) -> float:
        done = subprocess.run(
            [*before, chosen.torch, "-c", PROGRAM],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            preexec_fn=lambda: processes.write_text(str(os.getpid())),
        )
        return float(done.stdout)

    fit = (sys.executable, "-m", "mlbackends", "run", "--fit", "--")
    rounds = [(speed(), speed(*fit)) for _ in range(chosen.rounds)]
    processes.parent.rmdir()
    plain, fitted = (statistics.median(side) for side in zip(*rounds, strict=True))
    cpus = len(os.sched_getaffinity(0))
    print(f"quota {chosen.quota:g} of {cpus} CPUs, medians of {chosen.rounds} rounds, tokens a second:")
    print(f"as it is {plain:.1f}, with --fit {fitted:.1f}: {fitted / plain:.1f} times")


if __name__ == "__main__":
    main()
