"""Check what an sdist and wheels hold: ``python tests/contracts/check_dist.py DIST``.

Runs in a clean clone: the sdist must hold what git does, no more and no less. LIEF reads the libraries of
each wheel, and auditwheel, where it is installed, what systems a manylinux wheel fits.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from check_libraries import library_faults, platform_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
#: Five times what a wheel takes: more than that is a file that does not belong into it.
MOST_BYTES = 10_000_000
WANTED_ENDINGS = (
    ".dist-info/licenses/LICENSE",
    ".data/data/share/bash-completion/completions/backends",
    ".data/data/share/fish/vendor_completions.d/backends.fish",
    ".data/data/share/zsh/site-functions/_backends",
)


def wheel_faults(wheel: Path, tracked: set[str]) -> list[str]:
    """Say what the wheel lacks, and what does not belong into it."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    names, tag = files.keys(), wheel.stem.rpartition("-")[2]
    faults = [
        f"{top} at the top"
        for top in sorted({PurePosixPath(name).parts[0] for name in names})
        if top not in PACKAGES and not top.startswith(PREFIX)
    ]
    faults += [f"no {name}" for name in WANTED_IN_WHEEL if name not in names]
    pages = [
        f".data/data/share/man/man{name[-1]}/{PurePosixPath(name).name}"
        for name in sorted(tracked)
        if name.startswith("man/") and name[-2] == "." and name[-1].isdigit()
    ]
    pages += [
        f".data/data/share/man/man7/backends-{page}.7" for page in ("facts", "flags", "policy", "deviations")
    ]
    faults += [
        f"no *{ending}"
        for ending in (*WANTED_ENDINGS, *pages)
        if not any(name.endswith(ending) for name in names)
    ]
    modules = {installed_name(name) for name in tracked} - {""}
    if tag != "any":
        platform = platform_of(tag)
        modules |= platform.names()
        faults += library_faults(platform, files)
        faults += audit_faults(wheel) if tag.startswith("manylinux") else []
    elif sys.platform == "linux" and shutil.which("cc"):
        faults.append("it is for any platform, though there is a C compiler")
    packed = {name for name in names if PurePosixPath(name).parts[0] in PACKAGES}
    faults += [f"no {name}" for name in sorted(modules - packed)]
    faults += [f"{name} is not in git" for name in sorted(packed - modules)]
    faults += metadata_faults(wheel, files)
    if wheel.stat().st_size > MOST_BYTES:
        faults.append(f"{wheel.stat().st_size} bytes are more than {MOST_BYTES}")
    return [f"{wheel.name}: {fault}" for fault in faults]


def metadata_faults(wheel: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield where a wheel's name, its tags, its licence and its RECORD disagree."""
    folder = "-".join(wheel.stem.split("-")[:2]) + ".dist-info"
    heads, parser = {}, HeaderParser()
    for name in ("WHEEL", "METADATA"):
        heads[name] = parser.parsestr(files.get(f"{folder}/{name}", b"").decode())
    tags = heads["WHEEL"].get_all("Tag")
    if tags != ["-".join(wheel.stem.split("-")[2:])]:
        yield f"WHEEL has the tags {tags}"
    is_pure = str(wheel.stem.endswith("-any")).lower()
    if heads["WHEEL"]["Root-Is-Purelib"] != is_pure:
        yield f"WHEEL does not say Root-Is-Purelib: {is_pure}"
    if heads["METADATA"]["License-Expression"] != "Apache-2.0":
        yield "METADATA names no licence"
    record = files.get(f"{folder}/RECORD", b"").decode().splitlines()
    rows = {name: (digest, size) for name, digest, size in csv.reader(record)}
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        wanted = ("", "") if name == f"{folder}/RECORD" else (f"sha256={digest}", str(len(content)))
        if rows.get(name) != wanted:
            yield f"RECORD is wrong about {name}"
    yield from (f"RECORD has {name}, which is not there" for name in sorted(rows.keys() - files))


def audit_faults(wheel: Path) -> list[str]:
    """Say where auditwheel finds that a wheel fits fewer systems than its tag says."""
    if not find_spec("auditwheel"):
        return []
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = " ".join(done.stdout.split())
    found = text.partition('following platform tag: "')[2].partition('"')[0]
    tag = wheel.stem.rpartition("-")[2]
    try:
        fits = platform_of(found).oldest <= platform_of(tag).oldest and found.startswith("manylinux")
    except ValueError:
        fits = False
    return [] if fits else [f"auditwheel shows {found or text + done.stderr}"]


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
    return faults + [f"sdist: {name} is not in git" for name in sorted(packed - tracked - {"PKG-INFO"})]


def main(folder: Path) -> int:
    """Return 1 if something is wrong, after printing what."""
    wheels = sorted(folder.glob("*.whl"))
    (sdist,) = folder.glob("*.tar.gz")
    listing = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    tracked = set(listing.stdout.rstrip("\0").split("\0"))
    faults = sdist_faults(sdist, tracked) + ([] if wheels else [f"{folder} holds no wheel"])
    for wheel in wheels:
        faults += wheel_faults(wheel, tracked)
    print(*(faults or [f"{file.name}: as it should be" for file in (sdist, *wheels)]), sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
