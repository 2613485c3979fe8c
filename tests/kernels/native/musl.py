"""Open the libraries of the wheels for musl: ``python tests/kernels/native/musl.py DIST [PROCESSOR]...``.

There is no Python for musl on most machines, so open_library.c opens the library of attention under musl's
own loader, with the shim of `backends trace` preloaded, and must get the CPU's levels; nothing is computed.
musl's loader comes from Debian's package musl; another processor's runs by qemu-user. Needs zig.

Ends with 0 where all is right, 1 where something is not; what cannot be had is reported as skipped.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from levels import expected_levels, flags_here

SOURCE = Path(__file__).with_name("open_library.c")
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
FOLDER = "mlbackends_kernels/lib/"


class Lacking(Exception):
    """What cannot be had; the message names it."""


def loader_of(processor: str, folder: Path) -> list[str]:
    """Return the command of musl's loader. Raises Lacking."""
    loader = Path(f"/lib/ld-musl-{processor}.so.1")
    emulator = [] if processor == platform.machine() else [f"qemu-{processor}-static"]
    if emulator and not shutil.which(emulator[0]):
        raise Lacking(emulator[0])
    if not loader.exists():
        package = (f"APT::Architectures::={PROCESSORS[processor]}", f"Dir::State={folder}/apt")
        (folder / "apt" / "lists" / "partial").mkdir(parents=True)
        options = [word for option in package for word in ("-o", option)]
        file = f"musl:{PROCESSORS[processor]}"
        for command in (["update"], ["download", file]):
            done = subprocess.run(
                ["apt-get", *options, *command], cwd=folder, capture_output=True, check=False
            )
            if done.returncode:
                raise Lacking(f"Debian's {file}")
        subprocess.run(["dpkg", "-x", *folder.glob("musl_*.deb"), folder / "root"], check=True)
        loader = folder / "root" / loader.relative_to("/")
    return [*emulator, str(loader)]


def wrong_with(dist: Path, processor: str, folder: Path) -> str:
    """Return what is wrong with the wheel of a processor; "" where all is right. Raises Lacking."""
    loader = loader_of(processor, folder)
    wheel = next(dist.glob(f"*-musllinux_1_2_{processor}.whl"), None)
    if wheel is None:
        raise Lacking(f"a wheel for it in {dist}")
    with zipfile.ZipFile(wheel) as archive:
        for name in ("attention.so", "trace_shim.so"):
            (folder / name).write_bytes(archive.read(FOLDER + name))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-musl"]
    program, library = folder / "open_library", str(folder / "attention.so")
    subprocess.run([*command, "-dynamic", "-O2", str(SOURCE), "-o", str(program)], check=True)
    under = [*loader, f"--preload={folder}/trace_shim.so", str(program), library]
    done = subprocess.run(under, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"ended with {done.returncode}: {done.stderr.strip()}"
    found = tuple(done.stdout.split())
    if processor != platform.machine():  # which flags the emulator has is not known here
        return "" if found[:1] == ("neon",) else f"it runs {found}"
    expected = expected_levels(processor, flags_here())
    return "" if found == expected else f"it runs {found}; this CPU has {expected}"


def main(dist: str, *processors: str) -> int:
    """Try the wheel of each processor; print what was found."""
    found = 0
    for processor in processors or PROCESSORS:
        try:
            with tempfile.TemporaryDirectory() as folder:
                why = wrong_with(Path(dist).resolve(), processor, Path(folder))
        except Lacking as reason:
            print(f"skipped: {processor}: {reason} cannot be had here", flush=True)
            continue
        print(f"{processor}: {why or 'right, under musl'}", flush=True)
        found |= int(bool(why))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
