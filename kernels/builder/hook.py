"""What a build does beyond copying files: hatchling's build hook, and a script.

``python kernels/builder/hook.py`` compiles the native libraries of an editable install alone: the shim of
`backends trace`, and the library of attention on the CPU.

Where a C compiler works (CC, else cc, gcc or clang) the wheel is py3-none-PLATFORM and holds both; the
library needs the compiler's C++ too. What cannot be compiled is left out: a trace is then separated by a
terminal or a pipe, and attention is numpy's; a wheel without either is py3-none-any.
MLBACKENDS_NATIVE says otherwise: off compiles nothing, require fails where either is not compiled.

MLBACKENDS_OBJECTS names a folder in which what was compiled for attention stays, so that builds one after
another, as those of .ci/run, compile once what the preprocessor makes the same text of.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    Base = BuildHookInterface[Any]
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface as Base
    except ImportError:  # run as a script
        Base = object

ROOT = Path(__file__).resolve().parents[2]
#: The package that holds the compiled libraries, in a folder that git ignores, and its place in the tree.
PACKAGE = "mlbackends_kernels/lib"
TREE, NATIVE = ROOT / "kernels" / PACKAGE, ROOT / "kernels" / "native"
SHIM = "trace_shim.so"
ATTENTION, ATTENTION_HEADER = "attention.so", "attention.h"
PREPARED_CALLS = "prepared_calls.abi3.so"
COMPLETIONS = {
    "backends.bash": "share/bash-completion/completions/backends",
    "backends.fish": "share/fish/vendor_completions.d/backends.fish",
    "backends.zsh": "share/zsh/site-functions/_backends",
}


class NotCompiled(Exception):
    """There is no compiler, or one whose work does not run here."""


def compile_shim(output: Path) -> None:
    """Compile the shim of `backends trace`, and see that a program runs under it.

    Raises NotCompiled. A process that has the old file loaded keeps it.
    """
    sources = sorted(map(str, (NATIVE / "trace_shim").glob("*.c")))
    with _made_beside(output) as part, tempfile.TemporaryDirectory() as folder:
        _run([*_compiler(), *FLAGS, "-o", str(part), *sources])
        link = Path(folder, "shim")  # a name with blanks or colons would be two to the loader
        link.symlink_to(part.resolve())
        # The loader complains of one for another processor.
        if complaints := _run([sys.executable, "-c", ""], LD_PRELOAD=str(link)):
            raise NotCompiled(f"the shim does not load: {complaints}")


def compile_attention(
    output: Path,
    root: Path = ROOT,
    *,
    extra: Sequence[str] = (),
    machine: str = "",
) -> None:
    """Compile the library of attention on the CPU, its kernels once for each instruction set.

    extra: more flags, as a sanitizer's. machine: another processor, for which CC compiles; the library
    is then not tried. Raises NotCompiled.
    """
    folder = root / "kernels" / "native" / "attention"
    compiler = [*_compiler(), "-pthread"]
    levels = LEVELS.get(machine or platform.machine(), PORTABLE)
    kernels = {"kernel": folder / "kernel.cpp", "gradients": folder / "gradients_kernel.cpp"}
    units = {
        f"{stem}_{name}": (file, shlex.split(flags))
        for stem, file in kernels.items()
        for name, flags in levels.items()
        if stem == "kernel" or _REST not in flags
    }
    rest = sorted(file for file in folder.glob("*.cpp") if file not in kernels.values())
    units |= {file.stem: (file, []) for file in rest}
    kept = os.environ.get("MLBACKENDS_OBJECTS", "")
    with _made_beside(output) as part, tempfile.TemporaryDirectory() as objects:

        def compiled(name: str) -> str:
            source, flags = units[name]
            command = [*compiler, *CPP_FLAGS, *extra, *flags]
            made = Path(objects, f"{name}.o")
            try:
                if kept:
                    text = made.with_suffix(".ii")
                    _run([*command, "-E", "-P", "-o", str(text), str(source)])  # without paths
                    # What -D defines is in the text already; -v tells which compiler it is.
                    words = [word for word in command if not word.startswith("-D")]
                    identity = "\n".join([*words, _run([*command, "-v"]), text.read_text("utf-8")])
                    made = Path(kept, f"{hashlib.sha256(identity.encode()).hexdigest()}.o")
                    if made.exists():
                        return str(made)
                with _made_beside(made) as written:
                    _run([*command, "-c", "-o", str(written), str(source)])
            except NotCompiled:
                if source in kernels.values():
                    try:
                        _run([*compiler, *CPP_FLAGS, *flags, "-fsyntax-only", os.devnull])
                    except NotCompiled:  # an instruction set that came after the compiler
                        return ""
                raise
            return str(made)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = [file for file in pool.map(compiled, units) if file]
        linked = ["-shared", "-Wl,-z,now,-z,relro"]
        if not extra:  # a sanitizer's symbols are the program's
            linked.append("-Wl,-z,defs,-s")
        _run([*compiler, *extra, *linked, "-o", str(part), *made])
        # A sanitizer's library loads only into a process that has the sanitizer.
        if not extra and not machine:
            opened = "ctypes.CDLL(sys.argv[1]).mlbackends_attention_abi()"
            _run([sys.executable, "-c", f"import ctypes, sys; {opened}", str(part)])


def copy_attention_header(output: Path) -> None:
    """Copy the header of the library of attention, from which Python reads its structures."""
    _require_attention(output)
    with _made_beside(output) as part:
        shutil.copyfile(NATIVE / "attention" / "problem.h", part)


def compile_prepared_calls(output: Path) -> None:
    """Compile the module of prepared calls, which calls the library of attention beside it.

    It is of the stable ABI, for every CPython from 3.11 on that has a GIL. Raises NotCompiled.
    """
    _require_attention(output)
    include = Path(sysconfig.get_paths()["include"])
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotCompiled("the module of prepared calls is for a CPython that has a GIL")
    if not (include / "Python.h").is_file():
        raise NotCompiled(f"there is no Python.h in {include}")
    source = NATIVE / "python" / "prepared_calls.cpp"
    flags = [f"-I{include}", f"-I{NATIVE / 'attention'}", "-shared", "-Wl,-z,now,-z,relro,-s"]
    linked = ["-x", "none", f"-L{output.parent}", f"-l:{ATTENTION}", "-Wl,-rpath,$ORIGIN"]
    with _made_beside(output) as part:
        _run([*_compiler(), *CPP_FLAGS, *flags, "-o", str(part), str(source), *linked])


def _require_attention(output: Path) -> None:
    if not output.with_name(ATTENTION).is_file():
        raise NotCompiled("the library of attention was not compiled")


# Written as C++, linked as C: nothing of the C++ library is used, so one file serves every system.
CPP_FLAGS = shlex.split(
    "-x c++ -std=c++17 -O2 -g0 -fPIC -Wall -Wextra -Wno-unknown-warning-option -Wno-uninitialized"
    " -Wno-maybe-uninitialized -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden"
    " -ffp-contract=fast -fno-math-errno"
)
_AVX512 = "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512"
_PAIRS = "-DMLBACKENDS_BFLOAT16_PAIRS"
_REST = "-DMLBACKENDS_REST"  # from whom a level has all but its products of bfloat16
PORTABLE = {"baseline": "-DMLBACKENDS_LEVEL=baseline"}
#: The flags of each processor's instruction sets; what runs where stands in levels.cpp.
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

# No start files: the shim loads into programs of every C library that has its symbols.
FLAGS = shlex.split(
    "-shared -fPIC -O2 -g0 -std=gnu11 -Wall -Wextra -fvisibility=hidden -fno-builtin"
    " -fno-stack-protector -U_FORTIFY_SOURCE -nostartfiles -Wl,-z,now,-z,relro,-z,defs,-s"
)


def _compiler() -> list[str]:
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        raise NotCompiled(f"it is for 64-bit processors under Linux, this is {sys.platform}")
    if asked := os.environ.get("CC"):
        return shlex.split(asked)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    raise NotCompiled("no C compiler: looked for $CC, cc, gcc and clang")


def _run(command: list[str], **variables: str) -> str:
    """Run a command, and return what it complained of."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=600,  # a slow or busy machine takes minutes for the kernels of one instruction set
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotCompiled(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NotCompiled(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stderr.strip()


@contextlib.contextmanager
def _made_beside(output: Path) -> Iterator[Path]:
    """Give a file to write, which takes the output's place where all went well."""
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f"{output.name}.{os.getpid()}")
    try:
        yield part
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


#: What makes each file, in this order, and what the wheel is without where it cannot.
COMPILED = {
    SHIM: (compile_shim, "the shim of backends trace"),
    ATTENTION: (compile_attention, "the library of attention on the CPU"),
    ATTENTION_HEADER: (copy_attention_header, "the header of the library of attention"),
    PREPARED_CALLS: (compile_prepared_calls, "prepared calls of attention"),
}


def add_compiled(version: str, build_data: dict[str, Any]) -> None:
    """Compile for a wheel or an editable install, and name the wheel by its platform."""
    asked = os.environ.get("MLBACKENDS_NATIVE", "auto")
    if asked not in ("auto", "off", "require"):
        sys.exit(f"MLBACKENDS_NATIVE is {asked!r}; it may be auto, off or require")
    editable = version == "editable"
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    folder = TREE if editable else ROOT / "build" / name
    for file, (compiled, title) in COMPILED.items():
        output = folder / file
        if asked == "off":
            output.unlink(missing_ok=True)
            continue
        try:
            compiled(output)
        except NotCompiled as reason:
            if asked == "require" and file != PREPARED_CALLS:  # without these, calls are slower
                raise
            output.unlink(missing_ok=True)
            print(f"mlbackends: built without {title}: {reason}", file=sys.stderr)
            continue
        if not editable:
            build_data["force_include"][str(output)] = f"{PACKAGE}/{file}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{name}"


class LayoutHook(Base):
    """What hatchling calls, for the wheel and for the sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the native libraries, and add man pages and completions to what belongs under share/."""
        if self.target_name != "wheel":
            return
        for page in sorted((ROOT / "man").glob("*.[1-9]")):
            build_data["shared_data"][str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
        for name, place in COMPLETIONS.items():
            file = ROOT / "man" / "completions" / name
            if file.is_file():
                build_data["shared_data"][str(file)] = place
        add_compiled(version, build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Add tests/hosts to an sdist, links as links.

        hatchling follows links, and recorded machines hold the loops that /sys has.
        """
        del version, build_data
        hosts, sdist = ROOT / "tests" / "hosts", Path(artifact_path)
        if self.target_name != "sdist" or not hosts.is_dir():
            return
        packed = sdist.read_bytes()
        content = io.BytesIO(gzip.decompress(packed))
        with tarfile.open(fileobj=content) as archive:
            first = next(iter(archive))
        top = first.name.split("/", maxsplit=1)[0]

        def like_the_rest(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            if member.name == f"{top}/tests/hosts/__pycache__":
                return None
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = first.mtime
            return member

        content.seek(0)
        with tarfile.open(fileobj=content, mode="a") as archive:
            archive.add(hosts, f"{top}/tests/hosts", filter=like_the_rest)
        stamp = int.from_bytes(packed[4:8], "little")  # the time in the gzip header
        sdist.write_bytes(gzip.compress(content.getvalue(), mtime=stamp))


def main() -> None:
    """Compile the native libraries into the tree."""
    for file, (compiled, _) in COMPILED.items():
        compiled(TREE / file)
    print(TREE)


if __name__ == "__main__":
    main()
