"""The level of the library is the CPU's, whoever compiled it."""

import ctypes
import itertools
import platform
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from mlbackends_kernels.attention_cpu import library


def module(file: Path) -> Any:
    spec = spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


try:
    library.library()
    NOT_BUILT = ""
except library.NotBuilt as error:
    NOT_BUILT = str(error)
has_cpuinfo = pytest.mark.skipif(sys.platform != "linux", reason="/proc/cpuinfo is Linux's")
has_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[2] / "kernels"
SOURCES = KERNELS / "native" / "attention"
builder, levels = module(KERNELS / "builder" / "compilation.py"), module(HERE / "levels.py")


@has_cpuinfo
@pytest.mark.skipif(bool(NOT_BUILT), reason=NOT_BUILT)
def test_the_built_library_runs_every_level_that_the_cpu_has() -> None:
    """Compiled by zig it ran the baseline alone, when it read __builtin_cpu_supports."""
    assert not levels.wrong_levels()
    assert library.missing_levels() == ()


def levels_compiled_alone(folder: Path, compiler: list[str]) -> tuple[str, ...]:
    """Return the levels that levels.cpp finds this CPU to have; of none is there a kernel."""
    source, made = folder / "missing.cpp", folder / "missing.so"
    source.write_text(
        '#include "levels.h"\nextern "C" const char *missing(int number) { return missing_level(number); }\n'
    )
    flags = [*builder.CPP_FLAGS, "-fvisibility=default", "-shared", f"-I{SOURCES}"]
    command = [*compiler, *flags, "-o", str(made), str(source), str(SOURCES / "levels.cpp")]
    subprocess.run(command, check=True)
    name_of: Any = ctypes.CDLL(str(made)).missing
    name_of.restype = ctypes.c_char_p
    names = itertools.takewhile(bool, map(name_of, itertools.count()))
    return tuple(name.decode() for name in names)


@has_cpuinfo
@has_compiler
def test_what_was_not_compiled_is_missing(tmp_path: Path) -> None:
    found = levels_compiled_alone(tmp_path, ["cc"])
    without_sve = tuple(name for name in found if not name.startswith("sve"))
    assert without_sve == levels.expected_levels(platform.machine(), levels.flags_here())


@has_cpuinfo
@has_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="it is a function for x86-64")
def test_cpuid_says_what_the_compilers_function_says(tmp_path: Path) -> None:
    """The compiler's names of cpuinfo's flags; that of AMX needs the system's permission too."""
    names = {"avx512_bf16": "avx512bf16", "amx_bf16": "amx-bf16", "amx_tile": "amx-tile"}
    flags = sorted({flag for level, needed in levels.FLAGS.items() if "amx" not in level for flag in needed})
    asked = "".join(
        f'if (__builtin_cpu_supports("{names.get(flag, flag)}")) puts("{flag}");' for flag in flags
    )
    source, program = tmp_path / "supports.c", tmp_path / "supports"
    source.write_text(f"#include <stdio.h>\nint main(void) {{ __builtin_cpu_init(); {asked} return 0; }}\n")
    subprocess.run(["cc", "-o", str(program), str(source)], check=True)
    supported = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    found = levels_compiled_alone(tmp_path, ["cc"])
    assert tuple(name for name in found if "amx" not in name) == levels.expected_levels(
        "x86_64", supported.split()
    )


@has_compiler
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["address", "thread"])
def test_sanitizers_find_nothing_at_any_level(kind: str) -> None:
    command = [sys.executable, str(HERE / "sanitize.py"), "--all-levels", kind]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    if "skipped: " in done.stdout:
        pytest.skip(done.stdout)
    assert f"{kind}: clean" in done.stdout
