"""Stand-ins for what names a machine and its user, in the files of a recorded machine.

Unlike a word of `mlbackends.model.redaction`, a stand-in has the form of what it stands for: a probe
reads the recorded file as it read the real one. The same value gets the same stand-in everywhere, so
that what was equal stays equal.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from mlbackends.model.patterns import URL_LOGIN
from mlbackends.model.redaction import COMMON_WORDS, Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOST, USER = "host", "user"

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_HOME = re.compile(r"(?<![\w.-])(/home/|/Users/|/export/home/)([^/\s:;,\"']+)")
_NO_LOGIN = "://***@"
_SHORTEST = 6
"""A shorter value, such as a job's number, stands in too many places where it means something else."""


class Disguise:
    """Replaces identifying text. `replaced` counts how often, by what it was.

    names: of the machine and its user. values: serial numbers and the like, as a report has them.
    """

    def __init__(self, names: Names | None = None, values: Iterable[str] = ()) -> None:
        names = names or Names()
        self.replaced: Counter[str] = Counter()
        self._numbers: dict[str, dict[str, int]] = {}
        self._rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = []
        home = names.home.rstrip("/")
        if home.count("/") > 1:
            mac = home.startswith("/Users/")
            self._whole(home, "home folder", f"/Users/{USER}" if mac else f"/home/{USER}")
        self._rules.append((_HOME, self._other_home))
        for name in dict.fromkeys((names.node, names.node.partition(".")[0])):
            if len(name) > 2 and name.lower() not in COMMON_WORDS:
                self._whole(name, "host name", HOST)
        if len(names.user) > 2 and names.user.lower() not in COMMON_WORDS:
            self._whole(names.user, "user name", USER)
        for value in sorted(set(values), key=len, reverse=True):
            if len(value) >= _SHORTEST and not _UUID.fullmatch(value):
                self._whole(value, "serial number or the like", self._like(value))
        self._rules += [(_UUID, self._uuid), (_MAC, self._mac), (URL_LOGIN, self._login)]

    def text(self, text: str) -> str:
        """Return a text with stand-ins."""
        for pattern, stand_in in self._rules:
            text = pattern.sub(stand_in, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return a file's content with stand-ins; what is no UTF-8 is looked at byte for byte."""
        text = data.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def value(self, value: Any) -> Any:
        """Return texts, lists and tables with stand-ins; names of fields stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {
                self.text(key) if "/" in key else key: self.value(each)
                for key, each in value.items()
            }
        return value

    def _whole(self, value: str, kind: str, stand_in: str) -> None:
        """Replace a value where it is no part of a longer word."""

        def replaced(met: re.Match[str]) -> str:
            del met
            self.replaced[kind] += 1
            return stand_in

        self._rules.append((re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-])"), replaced))

    def _like(self, value: str) -> str:
        """Return a value of the same length and kinds of characters, which says nothing."""
        return re.sub(r"[A-Za-z]", "X", re.sub(r"[0-9]", "0", value))

    def _other_home(self, met: re.Match[str]) -> str:
        if met[2] in (USER, "USER"):
            return met[0]
        number = self._number("another user's home folder", met[2])
        return f"{met[1]}other-{number}"

    def _uuid(self, met: re.Match[str]) -> str:
        return f"00000000-0000-4000-8000-{self._number('UUID', met[0]):012x}"

    def _mac(self, met: re.Match[str]) -> str:
        high, low = divmod(self._number("hardware address", met[0]), 256)
        return f"02:00:00:00:{high % 256:02x}:{low:02x}"

    def _number(self, kind: str, value: str) -> int:
        """Return the number of a value among those of its kind, from 1."""
        self.replaced[kind] += 1
        known = self._numbers.setdefault(kind, {})
        return known.setdefault(value.lower(), len(known) + 1)

    def _login(self, met: re.Match[str]) -> str:
        if met[0] != _NO_LOGIN:
            self.replaced["login in an address"] += 1
        return _NO_LOGIN


class NoDisguise(Disguise):
    """Leaves everything as it is, but for logins in addresses, which are secrets and no identity."""

    def __init__(self) -> None:
        super().__init__()
        self._rules = [(URL_LOGIN, self._login)]
