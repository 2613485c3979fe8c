"""What a policy of 1,000 rules costs beside one of 10 and bare Python: CPU time, wall time, memory.

    python tests/benchmarks/policy.py [--rounds 15] [--rules 1000]

The rules are of ten kinds, over a saved report of a node with eight GPUs. One of each kind is what it
costs to start: both load the same modules. The commands are run in turn,
round by round, so that whatever else the machine does hits all of them; medians are printed, and what the
rules cost beyond the start of the command.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from start import BACKENDS, measured, processor

HOST = Path(__file__).resolve().parents[1] / "hosts" / "hgx-h100-eight-gpus.machine"
#: {0} stands for a number that differs from rule to rule: nothing is read once for all. All of them hold.
BODIES = (
    'check = "cpu.capability >= AVX2"',
    'fact = "nvidia"\nversion = ">=500.{0},<900"',
    'fact = "nvidia.devices[*].facts.max_pcie_width"\nmin = 0.{0}',
    'check = "cpu.cores >= 0.{0}"',
    'fact = "nvidia.devices[*].name"\nmatches = "H100|H200|H3{0}"',
    'check = "environment.variables.NONE_{0} absent"',
    'check = "nvidia.devices[kind == cuda, index != 1{0}] count == 8"',
    'fact = "host.os_id"\none_of = ["ubuntu", "debian{0}"]',
    'check = "host.libc_version >= 2.0.{0}"',
    'fact = "memory.total_bytes"\nmin = "0.{0}GiB"\nwhen = "cpu.threads != 1{0}"',
)


def policy(rules: int) -> str:
    """Return a policy of so many rules, of every kind in turn."""
    parts = ["schema = 1\n"]
    for number in range(rules):
        body = BODIES[number % len(BODIES)].replace("{0}", str(number // len(BODIES)))
        parts.append(
            f'[[rule]]\nid = "r{number}"\n{body}\nmessage = "It is not so."\nhint = "Do it."\n'
        )
    return "\n".join(parts)


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--rules", type=int, default=1000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [BACKENDS, "info", "--root", str(HOST), "--format", "json", "--output", report]
        subprocess.run(command, check=True)
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        for rules in (len(BODIES), chosen.rules):
            path = os.path.join(folder, f"{rules}.toml")
            Path(path).write_text(policy(rules), encoding="utf-8")
            commands[f"backends audit, {rules} rules"] = [
                BACKENDS,
                "audit",
                report,
                "--policy",
                path,
            ]
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for turn in range(chosen.rounds + 1):
            for name, words in commands.items():
                row = measured(words)
                if turn:
                    rows[name].append(row)
    medians = {
        name: [statistics.median(row[i] for row in measured_rows) for i in range(3)]
        for name, measured_rows in rows.items()
    }
    bare, few, many = medians.values()
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"medians of {chosen.rounds} rounds\n")
    print("| command | CPU ms | times bare Python | wall ms | peak MiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (cpu, wall, memory) in medians.items():
        print(f"| `{name}` | {cpu:.1f} | {cpu / bare[0]:.1f} | {wall:.1f} | {memory:.1f} |")
    beyond = many[0] - few[0]
    print(f"\n{chosen.rules} rules take {beyond:.0f} ms of CPU time beyond start-up,")
    print(f"{beyond / bare[0]:.1f} times bare Python; {many[1] - few[1]:.0f} ms of wall time.")


if __name__ == "__main__":
    main()
