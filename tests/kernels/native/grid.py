"""Compile attention_grid.cpp and the library that it calls: what the scripts beside this one share."""

from __future__ import annotations

import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: What computes the products of AVX-512 BF16 and AMX by other instructions.
EMULATED_PAIRS = ("-DMLBACKENDS_EMULATED_PAIRS", f"-I{HERE}")


def builder() -> Any:
    """Return the module that compiles, which knows the flags."""
    spec = spec_from_file_location("compilation", ROOT / "kernels" / "builder" / "compilation.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(
    folder: Path,
    native: Any,
    *,
    processor: str = "",
    flags: Sequence[str] = (),
    library: Sequence[str] = (),
) -> Path:
    """Compile the library and the program that calls it, and return the program.

    native: the module that compiles. processor: another one than this machine's. flags: of both; library:
    more of the library alone. Raises where either does not compile.
    """
    prefix = f"{processor}-linux-gnu-"
    command = [f"{prefix}gcc"] if processor else native.find_compiler()
    shared, program = folder / "attention.so", folder / "grid"
    target = native.target_of(command)
    native.compile_attention(shared, command, target, extra=(*flags, *library))
    include = f"-I{ROOT / 'kernels' / 'native' / 'attention'}"
    compiler = [f"{prefix}g++" if processor else "c++", "-std=c++20", "-pthread"]
    linked = [str(shared), f"-Wl,-rpath,{folder}", "-o", str(program)]
    source = str(HERE / "attention_grid.cpp")
    subprocess.run([*compiler, *(flags or ("-O2",)), include, source, *linked], check=True)
    return program
