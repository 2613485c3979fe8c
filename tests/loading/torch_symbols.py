"""Write core/mlbackends/loading/torch_builds.json: which builds of torch define which of its public symbols.

    python tests/loading/torch_symbols.py [WHEEL|URL]...
    python tests/loading/torch_symbols.py --fits WHEEL|URL...     the builds that extensions in wheels fit

Reads the wheels of torch for x86-64 Linux that PyPI has, from OLDEST on, or those that are named: only
the members with symbols, as a stream. A row is a set of builds, as bits, with the symbols that these and no
others define: the CRCs of their names, sorted, as differences of 7 bits a byte, in base 85. Where two symbols
have one CRC, it has the builds of both.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import Any

from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.loading.torch_builds import defining, in_words, is_of_torch

OLDEST = (2, 4)
TABLE = Path(__file__).parents[2] / "core/mlbackends/loading/torch_builds.json"
INDEX = "https://pypi.org/simple/torch/"
LIBRARIES = tuple(
    f"torch/lib/lib{name}.so"
    for name in ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch_cuda_linalg", "torch_python")
)


class Remote(io.RawIOBase):
    """A file on a server that is read by ranges; reading on continues the answer that is open."""

    def __init__(self, url: str) -> None:
        self.url, self.at = url, 0
        self.answer: Any = None
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as head:
            self.size = int(head.headers["content-length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = (0, self.at, self.size)[whence] + offset
        if at != self.at:
            self.at, self.answer = at, None
        return self.at

    def read(self, size: int = -1) -> bytes:
        if self.answer is None:
            wanted = {"Range": f"bytes={self.at}-{self.size - 1}"}
            self.answer = urllib.request.urlopen(urllib.request.Request(self.url, headers=wanted))
        data: bytes = self.answer.read(size if size >= 0 else self.size - self.at)
        self.at += len(data)
        return data


def wheels() -> list[str]:
    """Return the addresses of the wheels on PyPI, oldest first: one of each release, for one Python."""
    request = urllib.request.Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request) as answer:
        files = json.load(answer)["files"]
    chosen = {}
    for file in files:
        match = re.match(r"torch-(\d+)\.(\d+)\.(\d+)-cp312-cp312-manylinux\w+_x86_64", file["filename"])
        if match and not file["yanked"] and (number := tuple(map(int, match.groups()))) >= OLDEST:
            chosen[number] = file["url"]
    return [url for _, url in sorted(chosen.items())]


def symbols_of(wheel: str) -> tuple[str, set[str]]:
    """Return a wheel's build, "2.10.0+cu128", and the symbols of torch that its libraries define."""
    names: set[str] = set()
    source = Remote(wheel) if "://" in wheel else open(wheel, "rb")  # noqa: SIM115
    with source, zipfile.ZipFile(source) as archive:
        text = archive.read("torch/version.py").decode()
        for member in archive.infolist():
            if member.filename not in LIBRARIES:
                continue
            with tempfile.NamedTemporaryFile() as file, archive.open(member) as library:
                shutil.copyfileobj(library, file, 1 << 22)
                file.flush()
                with ElfImage(file.name) as image:
                    names |= {name.decode() for name in DynamicSymbols(image).names()}
    match = re.search(r"__version__ = '(.*)'", text)
    assert match, wheel
    return match[1], set(filter(is_of_torch, names))


def packed(keys: list[int]) -> str:
    """Return ascending numbers as their differences, 7 bits a byte, lowest first, in base 85."""
    data, before = bytearray(), 0
    for key in keys:
        delta, before = key - before, key
        while delta > 0x7F:
            data.append(delta & 0x7F | 0x80)
            delta >>= 7
        data.append(delta)
    return base64.b85encode(bytes(data)).decode()


def table(found: dict[str, set[str]]) -> str:
    """Return the table's text. found: the symbols by build, oldest first."""
    masks: dict[int, int] = {}
    for i, names in enumerate(found.values()):
        for name in names:
            key = zlib.crc32(name.encode())
            masks[key] = masks.get(key, 0) | 1 << i
    by_mask: dict[int, list[int]] = {}
    for key in sorted(masks):
        by_mask.setdefault(masks[key], []).append(key)
    builds = ",\n  ".join(json.dumps(build.split("+")) for build in found)
    rows = ",\n  ".join(f'"{mask:x}": "{packed(keys)}"' for mask, keys in sorted(by_mask.items()))
    return f'{{\n "builds": [\n  {builds}\n ],\n "symbols": {{\n  {rows}\n }}\n}}\n'


def fits(wheel: str) -> str:
    """Return the torch that a wheel requires, and the builds in the table that its extensions fit."""
    used: set[str] = set()
    with Remote(wheel) if "://" in wheel else open(wheel, "rb") as source, zipfile.ZipFile(source) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        requires = re.findall(r"Requires-Dist: (torch\b.*)", archive.read(info).decode())
        for name in filter(re.compile(r"\.so(\.|$)").search, archive.namelist()):
            with tempfile.NamedTemporaryFile() as file, archive.open(name) as library:
                shutil.copyfileobj(library, file, 1 << 22)
                file.flush()
                with ElfImage(file.name) as image:
                    used |= set(filter(is_of_torch, map(str, DynamicSymbols(image).lacking.values())))
    return f"{wheel.rpartition('/')[2]} {requires}: {in_words(defining(s for s in used if defining([s])))}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fits"]:
        sys.exit(print(*map(fits, sys.argv[2:]), sep="\n"))
    TABLE.write_text(table(dict(map(symbols_of, sys.argv[1:] or wheels()))))
