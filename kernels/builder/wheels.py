"""Build a release on Linux: the sdist, and from it a wheel for each platform, compiled by zig.

``python kernels/builder/wheels.py [--output DIST] [--try] [PLATFORM...]``

It needs the dependency group `wheels` and a clean clone, since the contents of the sdist and the wheels are
compared with git. PLATFORM: the platforms of the wheels' tags, by default all. --try: install and run the
wheels that fit this machine, as tests/contracts/try_wheels.py does.

Builds are reproducible with the same commit and zig: SOURCE_DATE_EPOCH defaults to the commit's time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
#: The platform of each wheel's tag, and the target of zig that it is compiled for.
PLATFORMS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    # zig's oldest glibc for POWER is 2.19; only symbols of 2.17 are used, which auditwheel verifies.
    "manylinux_2_17_ppc64le": "powerpc64le-linux-gnu.2.19",
    "manylinux_2_17_s390x": "s390x-linux-gnu.2.17",
    # The oldest policy of PyPA for this processor, whose first glibc is 2.27.
    "manylinux_2_31_riscv64": "riscv64-linux-gnu.2.31",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
    "win_arm64": "aarch64-windows-gnu",
}


def build(output: Path, platforms: list[str], options: Sequence[str] = ()) -> None:
    """Write the sdist and a wheel for each platform. Raises CalledProcessError.

    options: further options of the compiler.
    """
    output.mkdir(parents=True, exist_ok=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _printed("git", "log", "-1", "--format=%ct")
    variables = {"SOURCE_DATE_EPOCH": epoch, "MLBACKENDS_NATIVE": "require"}
    version = _printed(sys.executable, "-m", "hatchling", "version")
    _pack("sdist", ROOT, output, variables)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(output / f"mlbackends-{version}.tar.gz") as sdist:
            sdist.extractall(scratch, filter="data")
        tree = Path(scratch, f"mlbackends-{version}")
        for platform in platforms:
            words = [sys.executable, "-m", "ziglang", "cc", "-target", PLATFORMS[platform]]
            target = {"CC": shlex.join([*words, *options]), "MLBACKENDS_PLATFORM": platform}
            _pack("wheel", tree, output, {**variables, **target})


def _pack(kind: str, tree: Path, output: Path, variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(output.resolve())]
    subprocess.run(command, cwd=tree, env={**os.environ, **variables}, check=True)


def _printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(words: list[str]) -> int:
    """Build, check and try; return 1 on a failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"{', '.join(PLATFORMS)}")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="by default dist/")
    parser.add_argument("--try", action="store_true", dest="run", help="run what runs here")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.platforms) - PLATFORMS.keys():
        parser.error(f"no wheel is for {', '.join(unknown)}; there are: {', '.join(PLATFORMS)}")
    build(arguments.output, arguments.platforms or [*PLATFORMS])
    wrong = 0
    for script in ("check_dist.py", *(["try_wheels.py"] if arguments.run else [])):
        command = [sys.executable, f"tests/contracts/{script}", str(arguments.output.resolve())]
        wrong |= subprocess.run(command, cwd=ROOT, check=False).returncode
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
