"""Compile the native libraries, for this machine or another.

They are the shim of `backends trace`, attention on the CPU, and a stand-in for a CUDA driver without devices.
``python kernels/builder/compilation.py [FOLDER]`` compiles them into an editable install, or into a folder.

CC is the compiler of C and C++, with the options that choose its target: GCC, clang or zig, as in
``CC="python -m ziglang cc -target aarch64-linux-gnu.2.17"``; without it cc, gcc or clang is used. The target
determines which files are made and their names.

MLBACKENDS_OBJECTS is a folder for compiled objects of attention, which later builds reuse for equal
preprocessed sources, as in .ci/run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "kernels" / "native"
#: The folder of the compiled libraries in the tree, which git ignores.
TREE = ROOT / "kernels" / "mlbackends_kernels" / "lib"
SHIM, NO_DRIVER, ATTENTION_HEADER = "trace_shim.so", "no_driver.so", "attention.h"


class NotCompiled(Exception):
    """No compiler was found, or its output does not run."""


class Target(NamedTuple):
    """The target of a compiler. system: linux, windows or darwin. libc: musl or ""."""

    machine: str
    system: str = "linux"
    libc: str = ""

    @property
    def attention(self) -> str:
        """The name of the library of attention."""
        return f"attention{ {'windows': '.dll', 'darwin': '.dylib'}.get(self.system, '.so') }"


_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "powerpc64le": "ppc64le"}


def running() -> Target:
    """Return the target of this Python."""
    machine = platform.machine().lower()
    system = {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")
    libc = "musl" if "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) else ""
    return Target(_MACHINES.get(machine, machine), system, libc)


def target_of(compiler: Sequence[str]) -> Target:
    """Return the target of a compiler's command. Raises NotCompiled."""
    if "-target" in compiler[:-1]:
        triple = compiler[compiler.index("-target") + 1]
    else:
        triple = run([*compiler, "-dumpmachine"]).stdout
    machine, _, rest = triple.strip().lower().partition("-")
    systems = {"mingw": "windows", "windows": "windows", "darwin": "darwin", "macos": "darwin"}
    system = next((system for word, system in systems.items() if word in rest), "linux")
    return Target(_MACHINES.get(machine, machine), system, "musl" if "musl" in rest else "")


def find_compiler() -> list[str]:
    """Return the command of the compiler. Raises NotCompiled."""
    names = ("cc", "gcc", "clang")
    found = shlex.split(os.environ.get("CC", "")) or [*filter(None, map(shutil.which, names))][:1]
    if not found:
        raise NotCompiled("no C compiler: looked for $CC, cc, gcc and clang")
    # Without a target zig compiles for the CPU of this machine.
    return [*found, "-mcpu=baseline"] if _is_zig(found) and "-target" not in found else found


def _is_zig(compiler: Sequence[str]) -> bool:
    return not {"zig", "ziglang"}.isdisjoint(Path(word).stem for word in compiler)


def _version(command: Sequence[str]) -> str:
    """Return the compiler's version. zig's -v does not accept a glibc version in a target."""
    for place, word in enumerate(command):
        if _is_zig([word]):
            return run([*command[: place + 1], "version"]).stdout.strip()
    return run([*command, "-v"]).stderr.strip()


def compile_into(
    folder: Path,
    compiler: Sequence[str] = (),
    target: Target | None = None,
    *,
    required: bool = False,
) -> dict[str, str]:
    """Compile the files of a target; return why each one is missing, "" if it is not.

    compiler: its command, by default the one that is found. target: by default that of the compiler; files
    for this Python's own target are tried. required: all files must compile. Raises NotCompiled.
    """
    compiler = compiler or find_compiler()
    target = target or target_of(compiler)
    files: dict[str, str] = {}
    for name, compile_part in {
        **({SHIM: compile_shim, NO_DRIVER: compile_no_driver} if is_elf(target) else {}),
        target.attention: compile_attention,
        ATTENTION_HEADER: copy_attention_header,
    }.items():
        files[name] = ""
        try:
            compile_part(folder / name, compiler, target)
        except NotCompiled as reason:
            if required:
                raise
            (folder / name).unlink(missing_ok=True)
            files[name] = str(reason)
    return files


def compile_shim(output: Path, compiler: Sequence[str], target: Target) -> None:
    """Compile the shim of `backends trace`, and check that a program of this machine runs with it.

    Raises NotCompiled. Processes that have loaded the old file keep it.
    """
    sources = sorted(map(str, (NATIVE / "trace_shim").glob("*.c")))
    with _replaced_when_whole(output) as part, tempfile.TemporaryDirectory() as folder:
        # glibc before 2.32 has no functions for POWER's IEEE long double.
        more = ["-mabi=ibmlongdouble"] if target.machine == "ppc64le" else []
        run([*compiler, *SHIM_FLAGS, *more, "-o", str(part), *sources])
        if target != running():
            return
        link = Path(folder, "shim")  # the loader would split a name at blanks and colons
        link.symlink_to(part.resolve())
        # The loader prints a message for a library of another processor.
        if complaints := run([sys.executable, "-I", "-c", ""], LD_PRELOAD=str(link)).stderr.strip():
            raise NotCompiled(f"the shim does not load: {complaints}")


def compile_no_driver(output: Path, compiler: Sequence[str], target: Target) -> None:
    """Compile the stand-in for a CUDA driver without devices, with the real soname. Raises NotCompiled."""
    del target
    source = NATIVE / "no_driver" / "no_driver.c"
    with _replaced_when_whole(output) as part:
        run([*compiler, *SHIM_FLAGS, "-Wl,-soname,libcuda.so.1", "-o", str(part), str(source)])


def compile_attention(
    output: Path,
    compiler: Sequence[str],
    target: Target,
    *,
    root: Path = ROOT,
    extra: Sequence[str] = (),
    also: Sequence[str] = (),
) -> None:
    """Compile the library of attention on the CPU, its kernels for each instruction set.

    Instruction sets that the compiler does not support are left out. extra: further flags, such as a
    sanitizer's. also: what else is linked; it may need symbols of other libraries. Raises NotCompiled.
    """
    folder = root / "kernels" / "native" / "attention"
    kernels = {"kernel": folder / "kernel.cpp", "gradients": folder / "gradients_kernel.cpp"}
    units = {
        f"{stem}_{name}": (file, shlex.split(flags))
        for stem, file in kernels.items()
        for name, flags in levels_of(target).items()
        if stem == "kernel" or _REST not in flags
    }
    if _is_zig(compiler):  # zig has no -march for Arm
        for _, flags in units.values():
            flags[:] = [flag.replace("-march=armv8.2-a", "-mcpu=generic") for flag in flags]
    rest = sorted(file for file in folder.glob("*.cpp") if file not in kernels.values())
    units |= {file.stem: (file, []) for file in rest}
    cache = os.environ.get("MLBACKENDS_OBJECTS", "")
    threads = [] if target.system == "windows" else ["-pthread"]
    compiler = [*compiler, *threads]
    # zig's cc lacks the C++ headers; its c++ would link the C++ library.
    compiler_plus = [{"cc": "c++"}.get(w, w) for w in compiler] if _is_zig(compiler) else compiler
    with _replaced_when_whole(output) as part, tempfile.TemporaryDirectory() as objects:

        def compiled(name: str) -> str:
            source, flags = units[name]
            command = [*compiler_plus, *CPP_FLAGS, *extra, *flags]
            own = built = Path(objects, f"{name}.o")
            try:
                if cache:
                    text = built.with_suffix(".ii")
                    run([*command, "-E", "-P", "-o", str(text), str(source)])  # without paths
                    # The effect of -D is in the text already.
                    words = [word for word in command if not word.startswith("-D")]
                    identity = "\n".join([*words, _version(command), text.read_text("utf-8")])
                    built = Path(cache, f"{hashlib.sha256(identity.encode()).hexdigest()}.o")
                if not built.exists():
                    with _replaced_when_whole(built) as written:
                        run([*command, "-c", "-o", str(written), str(source)])
            except NotCompiled:
                if source in kernels.values() and not is_known(command):
                    return ""  # the compiler is too old for this instruction set
                raise
            if built != own:  # zig links for macOS in the order of file names
                shutil.copyfile(built, own)
            return str(own)

        def is_known(command: list[str]) -> bool:
            """Return whether a compiler supports the options of a command."""
            with tempfile.TemporaryDirectory() as scratch:
                empty = Path(scratch, "empty.cpp")
                empty.touch()
                try:
                    run([*command, "-c", "-o", str(empty.with_suffix(".o")), str(empty)])
                except NotCompiled:
                    return False
            return True

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            built = [file for file in pool.map(compiled, units) if file]
        # A sanitizer's symbols are the program's.
        linked = [
            *link_flags(target, output.name, Path(objects)),
            *(["-Wl,-z,defs"] if is_elf(target) and not extra and not also else []),
        ]
        run([*compiler, *extra, *linked, "-o", str(part), *built, *also])
        # A library with a sanitizer loads only into a process with the sanitizer.
        if not extra and not also and target == running():
            opened = "ctypes.CDLL(sys.argv[1]).mlbackends_attention_abi()"
            run([sys.executable, "-I", "-c", f"import ctypes, sys; {opened}", str(part.resolve())])


def copy_attention_header(output: Path, compiler: Sequence[str], target: Target) -> None:
    """Copy the header of the library of attention, from which Python reads its structures."""
    del compiler
    if not output.with_name(target.attention).is_file():
        raise NotCompiled("the library of attention was not compiled")
    with _replaced_when_whole(output) as part:
        shutil.copyfile(NATIVE / "attention" / "problem.h", part)


def is_elf(target: Target) -> bool:
    """Whether libraries of a target are ELF files."""
    return target.system == "linux"


def link_flags(target: Target, name: str, scratch: Path) -> list[str]:
    """Return the flags for a library of this name, without unneeded symbols.

    Without -O2 and -g0 zig adds debug information, the time to a DLL, and file names to a macOS library.
    """
    options = ["-shared", "-O2", "-g0"]
    if target.system == "darwin":
        return [*options, f"-Wl,-install_name,@loader_path/{name}"]
    if target.system == "windows":  # the import library is always made; keep it out of the DLL's folder
        return [*options, "-s", f"-Wl,--out-implib,{scratch / name}.lib"]
    return [*options, "-s", f"-Wl,-soname,{name},-z,now,-z,relro"]


# Written in C++ and linked as C: nothing of the C++ library is used, so one file works on every system.
CPP_FLAGS = shlex.split(
    "-x c++ -std=c++17 -O2 -g0 -fPIC -Wall -Wextra -Wno-unknown-warning-option -Wno-uninitialized"
    " -Wno-maybe-uninitialized -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden"
    " -ffp-contract=fast -fno-math-errno"
)
_AVX512 = "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512"
_PAIRS = "-DMLBACKENDS_BFLOAT16_PAIRS"
_REST = "-DMLBACKENDS_REST"  # the level that provides everything but bfloat16 products
PORTABLE = {"baseline": "-DMLBACKENDS_LEVEL=baseline"}
#: The flags of each processor's instruction sets; levels.cpp decides which one runs.
LEVELS = {
    "x86_64": {
        **PORTABLE,
        "avx2": "-DMLBACKENDS_LEVEL=avx2 -mavx2 -mfma -mf16c",
        "avx512": f"-DMLBACKENDS_LEVEL=avx512 {_AVX512}",
        "avx512_bf16": f"-DMLBACKENDS_LEVEL=avx512_bf16 {_PAIRS} {_REST}=avx512 {_AVX512} -mavx512bf16",
        "amx_bf16": (
            f"-DMLBACKENDS_LEVEL=amx_bf16 -DMLBACKENDS_TILES {_PAIRS} {_REST}=avx512 {_AVX512}"
            " -mavx512bf16 -mamx-tile -mamx-bf16"
        ),
    },
    "aarch64": {
        "neon": "-DMLBACKENDS_LEVEL=neon",
        "neon_bf16": f"-DMLBACKENDS_LEVEL=neon_bf16 {_PAIRS} {_REST}=neon -march=armv8.2-a+bf16",
        "sve256": f"-DMLBACKENDS_LEVEL=sve256 {_PAIRS} -march=armv8.2-a+sve+bf16 -msve-vector-bits=256",
        "sve512": "-DMLBACKENDS_LEVEL=sve512 -march=armv8.2-a+sve -msve-vector-bits=512",
    },
}


def levels_of(target: Target) -> dict[str, str]:
    """Return the flags of each instruction set of a target; SVE only for Linux."""
    levels = LEVELS.get(target.machine, PORTABLE)
    return {name: flags for name, flags in levels.items() if is_elf(target) or "sve" not in name}


# Without start files: the shim loads into programs of any C library that has its symbols.
SHIM_FLAGS = shlex.split(
    "-shared -fPIC -O2 -g0 -std=gnu11 -Wall -Wextra -fvisibility=hidden -fno-builtin"
    " -fno-stack-protector -U_FORTIFY_SOURCE -nostartfiles -Wl,-z,now,-z,relro,-z,defs,-s"
)


def run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command. Raises NotCompiled if it fails."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=1800,  # a busy machine takes minutes for an instruction set
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotCompiled(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NotCompiled(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done


@contextlib.contextmanager
def _replaced_when_whole(output: Path) -> Iterator[Path]:
    """Yield a file to write, which replaces the output on success.

    It has the output's name, which linkers for Windows and macOS write into the library.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        part = Path(folder, output.name)
        yield part
        part.replace(output)


def main(words: Sequence[str]) -> None:
    """Compile the native libraries into the tree, or into a folder."""
    folder = Path(words[0]) if words else TREE
    for name, reason in compile_into(folder).items():
        print(f"{folder / name}: {reason or 'compiled'}")


if __name__ == "__main__":
    main(sys.argv[1:])
