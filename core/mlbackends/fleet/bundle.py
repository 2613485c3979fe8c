"""Bundles: `backends` and all that it needs in one file, which runs where only Python is installed.

A bundle is a zip file that Python runs. It has the files of each distribution once, in `parts/`, and
`bundle.json` names the parts for each version of Python and platform. The same files give the same bytes.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata

import msgspec
from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.version import __version__
from mlbackends.fleet import unpacker
from mlbackends.host.files import read_regular

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: The most bytes of a bundle.
MOST_BYTES = 64 << 20
_OURS = "mlbackends"
#: What an installation adds to its metadata, which is not the same everywhere.
_LOCAL = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
#: Older names of manylinux tags, by the minor version of glibc.
_OLDER = {5: "1", 12: "2010", 17: "2014"}
#: Finds a Python that a bundle fits, and has it run a bundle from standard input after its hash was checked.
#: One line, since the login shell may be csh.
_FIND = (
    'node="${SLURMD_NODENAME:-${NODE_NAME:-$(uname -n)}}"; wanted="$1"; check="$2"; loader="$3"; shift 3; '
    'for python in "$0" python3 $(for v in $wanted; do echo "python$v"; done); do '
    'if "$python" -I -c "$check" $wanted </dev/null 2>/dev/null; '
    'then exec "$python" -I -c "$loader" "$node" "$@"; fi; done; '
    'found="$(python3 --version 2>/dev/null)"; '
    'echo "backends-push: $node: on its PATH is no Python $wanted; python3 is ${found:-not there}" >&2; '
    "exit 127"
)
_CHECK = 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1:])'
_LOADER = (
    "import hashlib, io, sys, zipfile; node, digest, size, *words = sys.argv[1:]; "
    "data = sys.stdin.buffer.read(int(size)); hashlib.sha256(data).hexdigest() == digest or "
    'sys.exit(f"backends-push: {node}: the bundle arrived damaged, {len(data)} of {size} bytes"); '
    'main = {}; exec(zipfile.ZipFile(io.BytesIO(data)).read("__main__.py"), main); '
    'sys.exit(main["main"](io.BytesIO(data), words, node))'
)


class Target(Struct, frozen=True):
    """What a bundle runs on. python: such as 3.11; platform: as in the name of a wheel."""

    python: str
    platform: str


class _Index(Struct):
    targets: list[Target]


Files = dict[str, bytes]


def bundle_of(targets: Sequence[tuple[Target, dict[str, Files]]]) -> bytes:
    """Return a bundle. targets: with the files of each of their parts."""
    every = {part: files for _, parts in targets for part, files in parts.items()}
    index = {
        "version": __version__,
        "targets": [
            {"python": target.python, "platform": target.platform, "parts": sorted(parts)}
            for target, parts in targets
        ],
    }
    content: Files = {"bundle.json": json.dumps(index, indent=1).encode()}
    with open(unpacker.__file__, "rb") as file:
        content["__main__.py"] = file.read()
    content |= {f"parts/{part}/{path}": data for part, files in every.items() for path, data in files.items()}
    output = io.BytesIO(b"#!/usr/bin/env python3\n")
    output.seek(0, os.SEEK_END)
    with zipfile.ZipFile(output, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content[name], zipfile.ZIP_DEFLATED, 9)
    return output.getvalue()


def installed() -> bytes:
    """Return a bundle of what this Python runs `backends` with. Raises BadInput."""
    from packaging.requirements import Requirement
    from packaging.tags import sys_tags

    parts: dict[str, Files] = {}
    pending, seen = [_OURS], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise BadInput(f"{name} is not installed as a distribution, so it cannot be bundled") from None
        parts[f"{dist.name}-{dist.version}"] = dict(_installed_files(dist))
        needed = map(Requirement, dist.requires or ())
        pending += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    tag = next(tag.platform for tag in sys_tags())
    if tag.startswith("manylinux"):
        # Which glibc the installed files need is not recorded.
        tag = "linux_" + tag.split("_", 3)[3]
    return bundle_of([(Target(f"{sys.version_info[0]}.{sys.version_info[1]}", tag), parts)])


def _installed_files(dist: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an installed distribution, and the sources of one that is installed as editable."""
    if dist.files is None:
        raise BadInput(f"{dist.name} has no RECORD of its files, so it cannot be bundled")
    for file in dist.files:
        path, hash_ = file.as_posix(), file.hash
        if file.suffix == ".pth" and file.parent.name == "":
            for line in file.read_text().splitlines():
                yield from _sources(line) if os.path.isdir(line) else ()
        elif _is_carried(path):
            digest = f"{hash_.mode}={hash_.value}" if hash_ else ""
            yield path, _checked(file.read_binary, digest, f"{dist.name}: {path}")


def _sources(folder: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not os.path.isfile(os.path.join(entry.path, "__init__.py")):
            continue
        for place, _, names in os.walk(entry.path):
            for name in names:
                path = os.path.join(place, name)
                if _is_carried(path[1:]):
                    yield os.path.relpath(path, folder), read_regular(path, MOST_BYTES)


def _is_carried(path: str) -> bool:
    head, _, name = path.rpartition("/")
    is_local = head.endswith(".dist-info") and name in _LOCAL
    return not (path.startswith(("/", "../")) or path.endswith(".pyc") or is_local)


def _checked(read: Callable[[], bytes], digest: str, what: str) -> bytes:
    """Return the content of a file whose hash is that of a RECORD. Raises BadInput."""
    try:
        data = read()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"{what} cannot be read: {error}") from None
    name, _, value = digest.partition("=")
    if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):
        found = urlsafe_b64encode(hashlib.new(name, data).digest()).rstrip(b"=").decode()
        if found != value.rstrip("="):
            raise BadInput(f"{what} is not as its RECORD says", "install that distribution again")
    return data


def downloaded(platforms: Sequence[str], pythons: Sequence[str], options: Sequence[str]) -> bytes:
    """Return a bundle of wheels that pip downloads. options: further ones of pip. Raises BadInput."""
    targets = []
    for platform in platforms:
        for python in pythons:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
                command += [f"--dest={folder}", f"--python-version={python}", *options]
                command += [f"--platform={tag}" for tag in _tags(platform)]
                done = subprocess.run(
                    [*command, f"{_OURS}=={__version__}"],
                    capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
                if done.returncode:
                    lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr]
                    hint = "--find-links DIR names a folder with wheels" if "pip" not in lines[-1] else ""
                    why = lines[-1].removeprefix("ERROR: ").strip()
                    raise BadInput(f"pip has no wheels for Python {python} on {platform}: {why}", hint)
                wheels = sorted(os.listdir(folder))
                parts = {name.removesuffix(".whl"): _wheel_files(f"{folder}/{name}") for name in wheels}
            targets.append((Target(python, platform), parts))
    return bundle_of(targets)


def _tags(platform: str) -> list[str]:
    """Return a platform's tag, and those of older systems whose wheels run there too."""
    kind, _, rest = platform.partition("_2_")
    minor, _, machine = rest.partition("_")
    if kind != "manylinux" or not minor.isdecimal() or int(minor) > 999:
        return [platform]
    known = range(int(minor), 4, -1)
    return [f"manylinux{part}_{machine}" for at in known for part in (f"_2_{at}", _OLDER.get(at)) if part]


def _wheel_files(path: str) -> Files:
    """Return the files that a wheel installs into site-packages. Raises BadInput."""
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = (line.rsplit(",", 2) for line in wheel.read(record).decode().splitlines())
        digests = {row[0].strip('"').replace('""', '"'): row[1] for row in rows if len(row) == 3}
        files = {}
        for name in names:
            head, _, rest = name.partition("/")
            scheme, _, inner = rest.partition("/") if head.endswith(".data") else ("purelib", "", name)
            if scheme in ("purelib", "platlib") and _is_carried(inner) and ".." not in inner.split("/"):
                what = f"{os.path.basename(path)}: {name}"
                if not digests.get(name):
                    raise BadInput(f"{what} is not in its RECORD")
                files[inner] = _checked(partial(wheel.read, name), digests[name], what)
    return files


def opened(path: str) -> bytes:
    """Return a bundle that was written to a file. Raises BadInput."""
    try:
        data = read_regular(path, MOST_BYTES)
        is_sound = bool(_targets_of(data)) and zipfile.ZipFile(io.BytesIO(data)).testzip() is None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, KeyError, msgspec.DecodeError, ValueError):
        is_sound = False
    if not is_sound:
        raise BadInput(f"{path} is not a bundle, or is damaged", "backends fleet bundle makes one")
    return data


def _targets_of(bundle: bytes) -> list[Target]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return msgspec.json.decode(archive.read("bundle.json"), type=_Index).targets


def described(bundle: bytes) -> str:
    """Return what a bundle runs on: Python 3.11 on linux_x86_64."""
    pythons: dict[str, list[str]] = {}
    for target in _targets_of(bundle):
        pythons.setdefault(target.platform, []).append(target.python)
    return "; ".join(f"Python {', '.join(names)} on {platform}" for platform, names in pythons.items())


def pushing(bundle: bytes, words: Sequence[str], python: str = "") -> tuple[str, ...]:
    """Return the command that runs `backends WORDS` of the bundle on its standard input.

    python: that of the node; by default the first that fits on its PATH.
    """
    wanted = " ".join(dict.fromkeys(target.python for target in _targets_of(bundle)))
    digest = hashlib.sha256(bundle).hexdigest()
    checked = (_CHECK, _LOADER, digest, str(len(bundle)))
    return ("sh", "-c", _FIND, python or "python3", wanted, *checked, *words)
