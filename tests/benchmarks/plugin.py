"""What the plugin for pytest costs a run of one empty test: unused, with the header, with a device.

    python tests/benchmarks/plugin.py [--rounds 15]

The runs are made in turn, round by round, without the plugins of others; medians of CPU time and their ratios
to a run with `-p no:mlbackends` are printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

from start import measured, processor

RUN = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
CASES = {
    "plugin turned off": ["-p", "no:mlbackends"],
    "plugin there, nothing of it used": [],
    "header shown": ["-o", "backends_header=always"],
    "`--backends-depth=found`, `device` used": ["--backends-depth=found", "test_device.py"],
    "`device` used": ["test_device.py"],
}


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PYTEST_ADDOPTS"] = "-p no:xdist -p no:cov -p no:hypothesispytest --rootdir=."
        Path("test_empty.py").write_text("def test_it(): pass\n", encoding="utf-8")
        Path("test_device.py").write_text("def test_it(device): pass\n", encoding="utf-8")
        for turn in range(rounds + 1):
            for name, arguments in CASES.items():
                files = [] if "test_device.py" in arguments else ["test_empty.py"]
                cpu, _, _ = measured([*RUN, *arguments, *files])
                if turn:  # the first round writes byte code
                    times[name].append(cpu)
        os.chdir("/")
    medians = {name: statistics.median(values) for name, values in times.items()}
    off = medians["plugin turned off"]
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"medians of {rounds} rounds\n")
    print("| run of pytest | CPU ms | ratio |")
    print("| --- | ---: | ---: |")
    for name, cpu in medians.items():
        print(f"| {name} | {cpu:.1f} | {cpu / off:.2f} |")


if __name__ == "__main__":
    main()
