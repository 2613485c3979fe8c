"""Run the attention library on emulated processors: ``python tests/kernels/native/cross.py [PROCESSOR]...``.

Each CPU that qemu-user plays must be given the levels that it has, and no other; one of them computes the
problems of attention_grid.cpp, which compares what it gets with a plain computation.

Ends with 0 where all is right, 1 where something is not; a processor without its compiler or emulator is
reported as skipped. ``--every-problem``: those too that an emulator takes minutes for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grid import build, builder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cpu(NamedTuple):
    """The setting of qemu, the levels that run there, and the one that computes; "" for none."""

    name: str
    levels: tuple[str, ...]
    computes: str = ""


#: SVE's vectors are as long as sve-max-vq times 16 bytes.
PROCESSORS = {
    "aarch64": (
        Cpu("cortex-a57", ("neon",), "neon"),
        Cpu("max,sve=off", ("neon", "neon_bf16"), "neon_bf16"),
        Cpu("max,sve-max-vq=1", ("neon", "neon_bf16")),
        Cpu("max,sve-max-vq=2", ("neon", "neon_bf16", "sve256"), "sve256"),
        Cpu("max,sve-max-vq=4", ("neon", "neon_bf16", "sve512")),
        Cpu("a64fx", ("neon", "sve512"), "sve512"),
    ),
    "riscv64": (Cpu("rv64", ("baseline",), "baseline"),),
}


def lacking(processor: str) -> str:
    """Return which tool is not here; "" where all are."""
    tools = (f"{processor}-linux-gnu-gcc", f"{processor}-linux-gnu-g++", f"qemu-{processor}")
    return ", ".join(tool for tool in tools if not shutil.which(tool))


def wrong_with(processor: str, cpu: Cpu, program: Path, problems: str) -> str:
    """Return what is wrong on this CPU; "" where all is right."""
    command = [f"qemu-{processor}", "-L", f"/usr/{processor}-linux-gnu", "-cpu", cpu.name]
    listing = subprocess.run(
        [*command, str(program), "levels"], check=False, capture_output=True, text=True, timeout=60
    )
    if tuple(listing.stdout.split()) != cpu.levels:
        return f"it runs {listing.stdout.split()}, not {list(cpu.levels)}; {listing.stderr.strip()}"
    if not cpu.computes:
        return ""
    done = subprocess.run(
        [*command, str(program), "address", problems, cpu.computes],
        check=False,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    return "" if not done.returncode else f"ended with {done.returncode}: {done.stderr.strip()}"


def found_on(processor: str, problems: str) -> Iterator[tuple[Cpu, str]]:
    """Yield each CPU of a processor with what is wrong on it."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        program = build(Path(folder), builder(), processor=processor)

        def tried(cpu: Cpu) -> tuple[Cpu, str]:
            return cpu, wrong_with(processor, cpu, program, problems)

        yield from pool.map(tried, PROCESSORS[processor])


def main(words: list[str]) -> int:
    """Build for each processor and run on each of its CPUs; say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(": ", maxsplit=1)[0])
    parser.add_argument("processors", nargs="*", help=f"of {', '.join(PROCESSORS)}")
    parser.add_argument("--every-problem", action="store_true", help="those that take long too")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.processors) - PROCESSORS.keys():
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(PROCESSORS)}")
    found = 0
    for processor in arguments.processors or PROCESSORS:
        if tools := lacking(processor):
            print(f"skipped: {processor} is not emulated: {tools} cannot be found", flush=True)
            continue
        for cpu, why in found_on(processor, "table" if arguments.every_problem else "small"):
            did = f"computes with {cpu.computes}" if cpu.computes else f"has {cpu.levels[-1]}"
            print(f"{processor}, {cpu.name}: {why or f'{did}, right'}", flush=True)
            found |= int(bool(why))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
