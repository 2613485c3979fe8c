"""the output of `conda list`."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, package

_HEAD = re.compile(r"^#?[ \t]*Name[ \t]+Version[ \t]+Build\b.*$", re.MULTILINE)
_ROW = re.compile(r"([\w.-]+)[ \t]+(\d\S*)(?:[ \t]+(\S+))?(?:[ \t]+(\S+))?[ \t]*$")
#: Rows without their heading, as grep leaves them: a build, and a channel.
_BARE = re.compile(
    r"(?:^[ \t]*[\w.-]+ {2,}\d\S* {2,}\S*_\d+ +(?:conda-forge|defaults|nvidia|pytorch|pkgs/main)[ \t]*$\n?)+",
    re.MULTILINE,
)
_FOLDER = re.compile(r"^# packages in environment at (.+?):?$", re.MULTILINE)
_CUDA = re.compile(r"cuda_?(\d{2})\.?(\d)")
_NAMES = {"pytorch": "torch", "libtorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}


def matches(text: str) -> bool:
    """Return whether the text has the heading of its columns, or rows alone."""
    return bool(_HEAD.search(text) or _BARE.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read the rows below each heading or without one, up to a line that is none."""
    starts = [head.end() + 1 for head in _HEAD.finditer(text)]
    for at in starts or [rows.start() for rows in _BARE.finditer(text)]:
        yield Stated("python.manager", "conda", at)
        for line in text[at:].split("\n"):
            row = _ROW.match(line.strip())
            if row:
                name, version, build, _ = row.groups()
                yield package(_NAMES.get(name, name), version, at)
                if name == "python":
                    yield Stated("python.version", version, at)
                if name in _NAMES and build and (cuda := _CUDA.search(build)):
                    yield Stated("torch.cuda_version", f"{cuda[1]}.{cuda[2]}", at)
                    yield Stated("torch.built_for", "cuda", at)
                elif name in _NAMES and build and re.search(r"(?:^|_)cpu(?:_|$)", build):
                    yield Stated("torch.built_for", "cpu", at)
            elif line.strip() and not re.match(r"[#─━]", line.strip()):
                break
            at += len(line) + 1
    if match := _FOLDER.search(text):
        yield Stated("python.prefix", match[1], match.start())
