"""Check what an sdist and a wheel hold: ``python tests/contracts/check_dist.py DIST``.

Runs in a clean clone: the sdist must hold what git does, no more and no less.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

PREFIX = "mlbackends-"
#: The packages of the wheel, and the folder of the tree that each lies in.
PACKAGES = {
    "mlbackends": "core",
    "mlbackends_cli": "cli",
    "mlbackends_kernels": "kernels",
    "mlbackends_probes": "probes",
}
WANTED_IN_WHEEL = (
    "mlbackends/__init__.py",
    "mlbackends/__main__.py",
    "mlbackends/py.typed",
    "mlbackends_cli/__init__.py",
    "mlbackends_kernels/__init__.py",
    "mlbackends_probes/__init__.py",
)
#: What a wheel for a platform holds and one for any does not.
COMPILED = tuple(
    f"mlbackends_kernels/lib/{name}"
    for name in ("attention.so", "attention.h", "prepared_calls.abi3.so", "trace_shim.so")
)
WANTED_ENDINGS = (
    ".dist-info/licenses/LICENSE",
    ".data/data/share/bash-completion/completions/backends",
    ".data/data/share/fish/vendor_completions.d/backends.fish",
    ".data/data/share/zsh/site-functions/_backends",
)


def wheel_faults(wheel: Path, tracked: set[str]) -> list[str]:
    """Say what the wheel lacks, and what does not belong into it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    faults = [
        f"wheel: {top} at the top"
        for top in sorted({PurePosixPath(name).parts[0] for name in names})
        if top not in PACKAGES and not top.startswith(PREFIX)
    ]
    faults += [f"wheel: no {name}" for name in WANTED_IN_WHEEL if name not in names]
    pages = [
        f".data/data/share/man/man{name[-1]}/{PurePosixPath(name).name}"
        for name in sorted(tracked)
        if name.startswith("man/") and name[-2] == "." and name[-1].isdigit()
    ]
    faults += [] if pages else ["git: no man pages"]
    faults += [
        f"wheel: no *{ending}"
        for ending in (*WANTED_ENDINGS, *pages)
        if not any(name.endswith(ending) for name in names)
    ]
    modules = {installed_name(name) for name in tracked} - {""}
    if not wheel.stem.endswith("-any"):
        modules.update(COMPILED)
    elif sys.platform == "linux" and shutil.which("cc"):
        faults.append(f"wheel: {wheel.name}, though there is a C compiler")
    packed = {name for name in names if PurePosixPath(name).parts[0] in PACKAGES}
    faults += [f"wheel: no {name}" for name in sorted(modules - packed)]
    faults += [f"wheel: {name} is not in git" for name in sorted(packed - modules)]
    return faults


def installed_name(tracked: str) -> str:
    """Return the name that a file in git has in the wheel, or nothing if it is not packed."""
    folder, _, rest = tracked.partition("/")
    package = rest.partition("/")[0]
    return rest if PACKAGES.get(package) == folder else ""


def sdist_faults(sdist: Path, tracked: set[str]) -> list[str]:
    """Say where the sdist and git differ, and what installers would refuse to unpack."""
    faults = []
    packed = set()
    with tarfile.open(sdist) as archive:
        for member in archive:
            name = str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
            try:
                tarfile.data_filter(member, str(sdist.parent.resolve()))
            except tarfile.FilterError as error:
                faults.append(f"sdist: {error}")
            if not member.isdir():
                packed.add(name)
    faults += [f"sdist: no {name}" for name in sorted(tracked - packed)]
    return faults + [
        f"sdist: {name} is not in git" for name in sorted(packed - tracked - {"PKG-INFO"})
    ]


def main(folder: Path) -> int:
    """Return 1 if something is wrong, after printing what."""
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    listing = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    tracked = set(listing.stdout.rstrip("\0").split("\0"))
    faults = wheel_faults(wheel, tracked) + sdist_faults(sdist, tracked)
    print(*(faults or [f"{wheel.name} and {sdist.name} are as they should be"]), sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
