"""What a pasted text states: values by the dotted names of a report, with their positions in the text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from mlbackends.model.records import FactValue

#: What tools print instead of a value.
_NOTHING = frozenset({
    "", "n/a", "na", "none", "null", "could not collect", "not found", "not installed", "unknown", "<unset>",
    "no cuda", "[n/a]", "not available", "not set", "<fill in>",
})  # fmt: skip
_PLATFORM = re.compile(
    r"(?P<system>Linux|Windows|macOS|Darwin)-(?P<release>[\w.+~-]*?)"
    r"(?:-(?P<machine>x86_64|aarch64|arm64|AMD64|ppc64le|riscv64|s390x)\b[\w.-]*?"
    r"(?:-with-(?P<libc>glibc|libc|musl)(?P<libc_version>[\d.]*))?)?(?:-SP\d|$|\s)"
)
PLATFORMS = {"Linux": "linux", "Windows": "win32", "macOS": "darwin", "Darwin": "darwin"}


class Stated(NamedTuple):
    """A value and where it is stated.

    name: torch.version, nvidia.devices.0.name, packages.distributions.numpy, environment.variables.NAME.
    at: the position of its line, or of the value in it.
    """

    name: str
    value: FactValue
    at: int


def is_stated(value: str) -> bool:
    """Return whether a text is a value, and not what a tool prints in place of one."""
    return value.strip().lower() not in _NOTHING


@cache
def _line(key: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*(?:[-*•] )?`?(?:{key})`?[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)


def fields(text: str, keys: Mapping[str, str]) -> Iterator[Stated]:
    """Yield the first value of each line "key: value". keys: patterns of keys, by the name of the value."""
    for name, key in keys.items():
        for match in _line(key).finditer(text):
            if is_stated(match[1]):
                yield Stated(name, match[1].strip(), match.start())
                break


def versions(stated: Iterable[Stated]) -> Iterator[Stated]:
    """Yield values without what follows the first word, as in "3.10.12 (main, ...)"."""
    for one in stated:
        yield one._replace(value=str(one.value).split()[0].strip(",;()"))


def platform(value: str, at: int) -> Iterator[Stated]:
    """Yield the facts in what Python's platform.platform() returns."""
    if (match := _PLATFORM.search(value)) is None:
        return
    yield Stated("host.platform", PLATFORMS[match["system"]], at)
    if match["machine"]:
        machine = {"AMD64": "x86_64"}.get(match["machine"], match["machine"])
        yield Stated("host.machine", machine, at)
    if match["libc"]:
        yield Stated("host.libc", match["libc"].replace("glibc", "libc").replace("libc", "glibc"), at)
    if match["libc_version"]:
        yield Stated("host.libc_version", match["libc_version"], at)
    yield from kernel(match["release"], at) if match["system"] == "Linux" else ()


def kernel(release: str, at: int) -> Iterator[Stated]:
    """Yield the facts in a release of Linux."""
    yield Stated("host.kernel_release", release, at)
    if "microsoft" in release.lower():
        is_first = release.startswith("4.4.0-") and release.endswith("-Microsoft")
        yield Stated("host.wsl_version", 1 if is_first else 2, at)
        if not is_first:
            yield Stated("nvidia.wsl", True, at)


def package(name: str, version: str, at: int) -> Stated:
    """Return an installed distribution."""
    return Stated(f"packages.distributions.{re.sub('[-_.]+', '-', name).lower()}", version, at)


def dotted(digits: str) -> str:
    """Return "121" or "1201" as "12.1"."""
    if len(digits) == len("1201"):
        return f"{int(digits[:2])}.{int(digits[2:])}"
    return f"{digits[:2]}.{digits[2:]}" if digits.isdecimal() and len(digits) > 2 else digits


def mib(amount: str, unit: str) -> int:
    """Return bytes of "24576", "MiB"."""
    return int(float(amount) * (1 << {"K": 10, "M": 20, "G": 30, "T": 40}.get(unit[:1].upper(), 0)))
