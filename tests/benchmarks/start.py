"""The cost of `backends` compared with bare Python and torch.utils.collect_env: CPU and wall time, memory.

    python tests/benchmarks/start.py [--rounds 15] [--torch PYTHON]

PYTHON is the interpreter of an environment that has torch; without it collect_env is left out. If this
package is installed there too, its commands are measured there as well, compared with that Python. The
commands are run in turn, round by round, so that whatever else the machine does hits all of them; medians
and ratios are printed, and the two budgets. A run of each before the rounds writes the byte code.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

BACKENDS = str(Path(sys.executable).with_name("backends"))
FOUND = "backends info --depth found --format json"


def measured(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its CPU time and wall time in ms, and the peak memory of its own process in MiB.

    CPU time is that of the process and of all children that it waited for.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = 0
    return (usage.ru_utime + usage.ru_stime) * 1000, wall * 1000, usage.ru_maxrss / 1024


def processor() -> str:
    """Return the name of the CPU that our probe reports."""
    command = [BACKENDS, "info", "--get", "cpu.model_name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or platform.processor()


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--torch", help="a Python that has torch")
    chosen = options.parse_args()
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import click, msgspec'": [sys.executable, "-c", "import click, msgspec"],
        "backends --version": [BACKENDS, "--version"],
        "backends, one completion": [BACKENDS],
        FOUND: [BACKENDS, *FOUND.split()[1:]],
        "backends info": [BACKENDS, "info"],
    }
    with_torch = str(Path(chosen.torch or "/nowhere").with_name("backends"))
    if os.path.exists(with_torch):
        commands["with torch: python -c pass"] = [chosen.torch, "-c", "pass"]
        commands["with torch: backends info"] = [with_torch, "info"]
        commands[f"with torch: {FOUND}"] = [with_torch, *FOUND.split()[1:]]
    if chosen.torch:
        commands["python -m torch.utils.collect_env"] = [
            chosen.torch,
            "-m",
            "torch.utils.collect_env",
        ]
    completion = {
        "_BACKENDS_COMPLETE": "bash_complete",
        "COMP_WORDS": "backends info cud",
        "COMP_CWORD": "2",
    }
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for turn in range(chosen.rounds + 1):
        for name, command in commands.items():
            if "collect_env" in name and turn > 5:
                continue
            extra = completion if "completion" in name else {}
            os.environ.update(extra)
            row = measured(command)
            for variable in extra:
                del os.environ[variable]
            if turn:
                rows[name].append(row)
    medians = {
        name: [statistics.median(row[i] for row in measured_rows) for i in range(3)]
        for name, measured_rows in rows.items()
    }
    bare = medians["python -c pass"][0]
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"medians of {chosen.rounds} rounds\n")
    print("| command | CPU ms | times bare Python | wall ms | peak MiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (cpu, wall, memory) in medians.items():
        print(f"| `{name}` | {cpu:.1f} | {cpu / bare:.1f} | {wall:.1f} | {memory:.1f} |")
    print(f"\nbudget: {medians[FOUND][0] / bare:.1f} of 10 times bare Python for `{FOUND}`")
    if os.path.exists(with_torch):
        ratio = medians[f"with torch: {FOUND}"][0] / medians["with torch: python -c pass"][0]
        seconds = medians["with torch: backends info"][1] / 1000
        print(f"with torch: {ratio:.1f} times; {seconds:.2f} of 0.40 s for `backends info`")
    if chosen.torch:
        env = medians["python -m torch.utils.collect_env"]
        found = medians[FOUND]
        full = medians["backends info"]
        print(
            f"\ncollect_env takes {env[0] / found[0]:.1f} times the CPU of `info --depth found --format json`"
        )
        print(f"and {env[1] / full[1]:.1f} times the wall time of `info`.")


if __name__ == "__main__":
    main()
