"""Bundles: `backends` and all that it needs in one file, which runs where only Python is installed.

A bundle is a zip file that Python runs. It has the files of each distribution once, in `parts/`, and
`bundle.json` names the parts for each version of Python and platform. The same files give the same bytes.
"""

import hashlib
import io
import itertools
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

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
    """What a bundle runs on, and with which of its parts.

    python: such as 3.11; platform: as in the name of a wheel.
    """

    python: str
    platform: str
    parts: tuple[str, ...] = ()


class _Index(Struct):
    version: str
    targets: tuple[Target, ...]


Files = dict[str, bytes]


def bundle_of(targets: Sequence[Target], parts: Mapping[str, Files]) -> bytes:
    """Return a bundle. parts: the files of each part, by its name."""
    content = {
        "bundle.json": msgspec.json.format(msgspec.json.encode(_Index(__version__, (*targets,)))),
        "__main__.py": Path(unpacker.__file__).read_bytes(),
    }
    content |= {f"parts/{part}/{path}": data for part, files in parts.items() for path, data in files.items()}
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

    dists: dict[str, metadata.Distribution] = {}
    pending = [_OURS]
    while pending:
        if (name := pending.pop()) in dists:
            continue
        try:
            dists[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise BadInput(f"{name} is not installed as a distribution, so it cannot be bundled") from None
        needed = map(Requirement, dists[name].requires or ())
        pending += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    tag = next(tag.platform for tag in sys_tags())
    if tag.startswith("manylinux"):
        # Which glibc the installed files need is not recorded.
        tag = "linux_" + tag.split("_", 3)[3]
    parts = _parts(dists.values())
    return bundle_of([Target(f"{sys.version_info[0]}.{sys.version_info[1]}", tag, (*sorted(parts),))], parts)


def _parts(dists: Iterable[metadata.Distribution]) -> dict[str, Files]:
    """Return the files of installed distributions, by name, version and the tag of their wheel."""
    parts = {}
    for dist in dists:
        lines = (dist.read_text("WHEEL") or "").splitlines()
        tag = next((line.partition(": ")[2] for line in lines if line.startswith("Tag: ")), "any")
        parts[f"{dist.name}-{dist.version}-{tag}"] = dict(_files(dist))
    return parts


def _files(dist: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a distribution, and the sources of one that is installed as editable."""
    if dist.files is None:
        raise BadInput(f"{dist.name} has no RECORD of its files, so it cannot be bundled")
    for file in dist.files:
        if file.suffix == ".pth" and len(file.parts) == 1:
            for folder in filter(os.path.isdir, file.read_text().splitlines()):
                yield from _sources(Path(folder))
        elif _is_carried(path := file.as_posix()):
            try:
                data = file.read_binary()
            except OSError as error:
                raise BadInput(f"{dist.name}: {path} cannot be read: {error.strerror}") from None
            if file.hash:
                digest = urlsafe_b64encode(hashlib.new(file.hash.mode, data).digest()).rstrip(b"=")
                if digest.decode() != file.hash.value:
                    what = f"{dist.name}: {path} is not as its RECORD says"
                    raise BadInput(what, "install that distribution again")
            yield path, data


def _sources(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the packages in a folder."""
    for package in folder.glob("*/__init__.py"):
        for file in package.parent.rglob("*"):
            if file.is_file() and _is_carried(path := file.relative_to(folder).as_posix()):
                yield path, file.read_bytes()


def _is_carried(path: str) -> bool:
    head, _, name = path.rpartition("/")
    is_local = head.endswith(".dist-info") and name in _LOCAL
    return not (path.startswith("/") or ".." in path.split("/") or path.endswith(".pyc") or is_local)


def downloaded(platforms: Sequence[str], pythons: Sequence[str], options: Sequence[str]) -> bytes:
    """Return a bundle of wheels that pip downloads. options: further ones of pip. Raises BadInput."""
    targets: list[Target] = []
    every: dict[str, Files] = {}
    for platform, python in itertools.product(platforms, pythons):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-compile"]
            command += ["--only-binary=:all:", f"--target={folder}", f"--python-version={python}", *options]
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
            parts = _parts(metadata.distributions(path=[folder]))
        targets.append(Target(python, platform, (*sorted(parts),)))
        every |= parts
    return bundle_of(targets, every)


def _tags(platform: str) -> list[str]:
    """Return a platform's tag, and those of older systems whose wheels run there too."""
    kind, _, rest = platform.partition("_2_")
    minor, _, machine = rest.partition("_")
    if kind != "manylinux" or not minor.isdecimal() or int(minor) > 999:
        return [platform]
    known = range(int(minor), 4, -1)
    return [f"manylinux{part}_{machine}" for at in known for part in (f"_2_{at}", _OLDER.get(at)) if part]


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


def _targets_of(bundle: bytes) -> tuple[Target, ...]:
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
