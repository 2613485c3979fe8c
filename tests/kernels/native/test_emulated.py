"""The attention library on emulated processors: each has its levels and no other, and they compute right.

One CPU for each level computes the problems of attention_grid.cpp, which compares what it gets with a plain
computation. EMULATE=1 runs it, as the job `emulated-attention` of .ci/systems does; EMULATE=every takes the
problems too that an emulator needs minutes for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

PROBLEMS = {"1": "small", "every": "table"}.get(os.environ.get("EMULATE", ""), "")
pytestmark = pytest.mark.skipif(not PROBLEMS, reason="EMULATE is not 1: .ci/systems emulated-attention")


class Cpu(NamedTuple):
    """The setting of qemu, the levels that run there, and the one that computes; "" for none."""

    processor: str
    name: str
    levels: tuple[str, ...]
    computes: str = ""


#: SVE's vectors are as long as sve-max-vq times 16 bytes.
CPUS = (
    Cpu("aarch64", "cortex-a57", ("neon",), "neon"),
    Cpu("aarch64", "max,sve=off", ("neon", "neon_bf16"), "neon_bf16"),
    Cpu("aarch64", "max,sve-max-vq=1", ("neon", "neon_bf16")),
    Cpu("aarch64", "max,sve-max-vq=2", ("neon", "neon_bf16", "sve256"), "sve256"),
    Cpu("aarch64", "max,sve-max-vq=4", ("neon", "neon_bf16", "sve512")),
    Cpu("aarch64", "a64fx", ("neon", "sve512"), "sve512"),
    Cpu("riscv64", "rv64", ("baseline",), "baseline"),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the program for each processor that this machine can compile for and emulate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
        grid = import_module("grid")  # as the scripts beside it do
    made = {}
    for processor in sorted({cpu.processor for cpu in CPUS}):
        tools = (f"{processor}-linux-gnu-g++", f"qemu-{processor}")
        if all(shutil.which(tool) for tool in tools):
            folder = tmp_path_factory.mktemp(processor)
            made[processor] = grid.build(folder, grid.builder(), processor=processor)
    return made


@pytest.mark.parametrize("cpu", CPUS, ids=lambda cpu: f"{cpu.processor},{cpu.name}")
def test_a_processor_is_given_its_levels_and_they_are_right(cpu: Cpu, programs: dict[str, Path]) -> None:
    if cpu.processor not in programs:
        pytest.skip(f"no compiler and emulator for {cpu.processor}")
    command = [f"qemu-{cpu.processor}", "-L", f"/usr/{cpu.processor}-linux-gnu", "-cpu", cpu.name]
    command.append(str(programs[cpu.processor]))

    listed = subprocess.run([*command, "levels"], check=True, capture_output=True, text=True, timeout=60)

    assert tuple(listed.stdout.split()) == cpu.levels
    if cpu.computes:
        computed = [*command, "address", PROBLEMS, cpu.computes]
        done = subprocess.run(computed, check=False, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr
