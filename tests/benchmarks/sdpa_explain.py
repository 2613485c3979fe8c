"""What `backends sdpa explain` costs beside Python with click: CPU time, as ratios in one run.

    python tests/benchmarks/sdpa_explain.py [--rounds 31]

The commands are run in turn, round by round, so that whatever else the machine does hits all of them; medians
and their ratios to `python -c 'import click'` are printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys

from start import BACKENDS, measured, processor

SHAPE = ("--shape", "2,8,1024,64")
GRID = (
    "--dtype",
    "float32,float16,bfloat16",
    "--mask",
    "none,causal,bool",
    "--device",
    "sm80,sm90,sm120,gfx942",
)
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "python -c 'import click, msgspec'": [sys.executable, "-c", "import click, msgspec"],
    "backends sdpa explain": [BACKENDS, "sdpa", "explain", *SHAPE],
    "... --device sm90": [BACKENDS, "sdpa", "explain", *SHAPE, "--device", "sm90"],
    "... --format json": [BACKENDS, "sdpa", "explain", *SHAPE, "--format", "json"],
    "... of 36 problems": [BACKENDS, "sdpa", "explain", *SHAPE, *GRID],
}  # fmt: skip


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=31)
    rounds = options.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(rounds + 1):
        for name, command in COMMANDS.items():
            cpu, _, _ = measured(command)
            if turn:  # the first round writes byte code
                times[name].append(cpu)
    medians = {name: statistics.median(values) for name, values in times.items()}
    budget = medians["python -c 'import click'"]
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"medians of {rounds} rounds\n")
    print("| command | CPU ms | times Python with click |")
    print("| --- | ---: | ---: |")
    for name, cpu in medians.items():
        print(f"| `{name}` | {cpu:.1f} | {cpu / budget:.2f} |")


if __name__ == "__main__":
    main()
