"""The cost of `import mlbackends` and of reading a switch, compared with bare Python, msgspec and torch.

    python tests/benchmarks/imports.py [--rounds 31] [--torch PYTHON]

PYTHON is the interpreter of an environment that has torch; without it torch is left out. The programs are
run in turn, round by round; medians of CPU time and their ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys

from start import measured, processor

PROGRAMS = {
    "pass": "pass",
    "import msgspec": "import msgspec",
    "import mlbackends": "import mlbackends",
    "one switch read": "import mlbackends; mlbackends.cuda.matmul.allow_tf32",
    "every switch read": "import mlbackends as m; from mlbackends.switches.table import SWITCHES\n"
    "for name in SWITCHES: m.flag_store.read(name)",
    "one switch set in a block": "import mlbackends as m\nwith m.cudnn.flags(enabled=True): pass",
}


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--torch", help="a Python that has torch")
    chosen = options.parse_args()
    commands = {name: [sys.executable, "-c", program] for name, program in PROGRAMS.items()}
    if chosen.torch:
        commands["import torch.backends"] = [chosen.torch, "-c", "import torch.backends"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(chosen.rounds + 1):
        for name, command in commands.items():
            if name == "import torch.backends" and turn > 5:
                continue
            cpu, _, _ = measured(command)
            if turn:  # the first round writes byte code
                times[name].append(cpu)
    medians = {name: statistics.median(values) for name, values in times.items()}
    budget = medians["import msgspec"]
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"medians of {chosen.rounds} rounds\n")
    print("| `python -c ...` | CPU ms | times bare Python with msgspec |")
    print("| --- | ---: | ---: |")
    for name, cpu in medians.items():
        print(f"| {name} | {cpu:.1f} | {cpu / budget:.2f} |")


if __name__ == "__main__":
    main()
