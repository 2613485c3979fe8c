"""Replace what names a machine and its user in the files of a recorded machine.

Unlike a word of `mlbackends.host.redaction`, a replacement has the form of what it replaces: a probe reads
the recorded file as it read the real one, and what was equal stays equal. Servers and network addresses are
replaced in values of variables and in addresses of packages, never in whole files: elsewhere 10.2.0.1 is a
version.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from mlbackends.base.patterns import (
    HARDWARE_ADDRESS,
    HOME,
    LONG_ID,
    SID,
    URL_LOGIN,
    UUID,
    without_secrets,
)
from mlbackends.base.tables import table
from mlbackends.host.recording import excerpts
from mlbackends.host.redaction import (
    NUMERIC_SERVER,
    Names,
    each_text,
    host_names,
    in_paths,
    in_texts,
    is_common,
    is_somebodys,
    without_addresses,
)
from mlbackends.host.windows.system import CONTAINER_USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Replace = Callable[[re.Match[str]], str]

HOST, USER = "host", "user"

_AMD_GPU = re.compile(r"\b(GPU-)([0-9a-f]{16})(?![0-9a-f-])", re.IGNORECASE)
_AMD_NUMBER = re.compile(r"^(unique_id )([1-9][0-9]*)$", re.MULTILINE)
_NO_LOGIN = "://redacted@"
#: A shorter value, such as a job's number, occurs in too many places with another meaning.
_SHORTEST = 6
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
_HOST_VARIABLES = ("HOSTNAME", "HOST", "COMPUTERNAME")


class Anonymiser:
    """Replaces identifying text. `replaced` counts how often, by what it was.

    names: of the machine and its user. values: serial numbers and the like, as a report has them.
    """

    def __init__(self, names: Names | None = None, values: Iterable[str] = ()) -> None:
        names = names or Names()
        self.replaced: Counter[str] = Counter()
        self._numbers: dict[str, dict[str, int]] = {}
        self._rules: list[tuple[re.Pattern[str], Replace]] = []
        home = names.home.rstrip("/")
        if home.count("/") > 1:
            top = "/home" if home[:1] == "/" and not home.startswith("/Users/") else "/Users"
            drive = home[:2] if home[1:2] == ":" else ""
            self._add_word(home, "home folder", f"{drive}{top}/{USER}")
        self._rules.append((HOME, self._other_home))
        for name in host_names(names):
            if len(name) > 2 and not is_common(name):
                self._add_name(name, "host name", HOST)
        if names.user and not is_common(names.user):
            if len(names.user) > 2:
                self._add_name(names.user, "user name", USER)
            paths, replace_user = in_paths(names.user, USER)

            def replace(found: re.Match[str]) -> str:
                path = replace_user(found)
                return path if path == found[0] else self._counted(path, "user name")

            self._rules.append((paths, replace))
        number = self._number
        self._rules += [
            (_AMD_GPU, lambda found: f"{found[1]}{number('UUID', found[2]):016x}"),
            (
                _AMD_NUMBER,
                lambda found: f"{found[1]}{number('UUID', f'{int(found[2][:20]):016x}')}",
            ),
        ]
        for value in sorted(set(values), key=len, reverse=True):
            has_rule = UUID.fullmatch(value) or _AMD_GPU.fullmatch(value)
            if len(value) >= _SHORTEST and not has_rule:
                shape = re.sub(r"[A-Za-z]", "X", re.sub(r"[0-9]", "0", value))
                self._add_word(value, "serial number or the like", shape)
        self._rules += [
            (UUID, self._uuid),
            (LONG_ID, self._long_id),
            (SID, lambda found: f"S-1-5-21-0-0-0-{number('security identifier', found[0])}"),
            (HARDWARE_ADDRESS, self._hardware_address),
            (URL_LOGIN, self._login),
            (
                NUMERIC_SERVER,
                lambda found: self._address(found[0]) if is_somebodys(found[0]) else found[0],
            ),
        ]

    def text(self, text: str) -> str:
        """Return an anonymised text."""
        for pattern, replace in self._rules:
            text = pattern.sub(replace, text)
        return without_secrets(text)

    def data(self, data: bytes) -> bytes:
        """Return an anonymised content; bytes that are not UTF-8 stay."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def file(self, path: str, data: bytes) -> bytes:
        """Return what is kept of a file that a probe read under that path, anonymised."""
        return self.data(excerpts.excerpt(path, data, self._addresses))

    def output(self, command: str, output: str) -> str:
        """Return what is kept of a command's output, anonymised."""
        return self.text(excerpts.of_command(command, output))

    def value(self, value: Any) -> Any:
        """Return a JSON value, anonymised; names of fields stay."""
        return each_text(value, self.text, lambda key: self.text(key) if "/" in key or "\\" in key else key)

    def description(self, description: dict[str, Any]) -> dict[str, Any]:
        """Return host.json, anonymised: names by what their field means, however short they are."""
        description = self.value(description)
        if description.get("uname", {}).get("nodename"):
            node = self._counted(HOST, "host name")
            description["uname"] = {**description["uname"], "nodename": node}
        variables = description["environment"] = {**description.get("environment", {})}
        for name, value in variables.items():
            if value and name in _USER_VARIABLES and value not in CONTAINER_USERS:
                variables[name] = self._counted(USER, "user name")
            elif value and name in _HOST_VARIABLES:
                variables[name] = self._counted(HOST, "host name")
            else:
                variables[name] = self._addresses(value, name)
        return description

    def _addresses(self, text: str, variable: str = "") -> str:
        """Replace numeric addresses, and the servers of URLs; in a variable that names servers, these too."""

        def server(name: str) -> str:
            return f"server-{self._number('server', name)}.example"

        return without_addresses(text, server, self._address, variable)

    # ---- rules ---------------------------------------------------------------------------------

    def _counted(self, replacement: str, kind: str) -> str:
        self.replaced[kind] += 1
        return replacement

    def _number(self, kind: str, value: str) -> int:
        """Return the number of a value among those of its kind, from 1."""
        self.replaced[kind] += 1
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value.lower(), len(numbers) + 1)

    def _add_word(self, value: str, kind: str, replacement: str) -> None:
        """Add a rule for a value that is not part of a longer word."""
        pattern = re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-])")
        self._rules.append((pattern, lambda _: self._counted(replacement, kind)))

    def _add_name(self, name: str, kind: str, replacement: str) -> None:
        """Add a rule for the name of a machine or a person."""
        pattern, replace_name = in_texts(name, replacement)

        def replace(found: re.Match[str]) -> str:
            text = replace_name(found)
            return text if text == found[0] else self._counted(text, kind)

        self._rules.append((pattern, replace))

    def _other_home(self, found: re.Match[str]) -> str:
        if found[2] in (USER, "USER"):
            return found[0]
        number = self._number("another user's home folder", found[2])
        return f"{found[1]}other-{number}"

    def _uuid(self, found: re.Match[str]) -> str:
        if found[0].lower() in _public_ids():
            return found[0]
        number = self._number("UUID", found[0].replace("_", "-"))
        return f"00000000-0000-4000-8000-{number:012x}".replace("-", found["sign"])

    def _long_id(self, found: re.Match[str]) -> str:
        number = self._number("container or machine id", found[0])
        return f"f{number:0{len(found[0]) - 1}x}"

    def _hardware_address(self, found: re.Match[str]) -> str:
        sign = found["sign"]
        number = self._number("hardware address", found[0].replace(sign, ":"))
        zeros = ["00"] * (found[0].count(sign) - 2)
        return sign.join(["02", *zeros, f"{number >> 8 & 255:02x}", f"{number & 255:02x}"])

    def _login(self, found: re.Match[str]) -> str:
        if found[0] == _NO_LOGIN:
            return found[0]
        return self._counted(_NO_LOGIN, "login in an address")

    def _address(self, text: str) -> str:
        """Return an address that is nobody's: of RFC 2544, 198.18 and 198.19, or of RFC 3849."""
        number = self._number("network address", text)
        if ":" in text:
            return f"2001:db8::{number & 0xFFFF:x}"
        return f"198.18.{number >> 8 & 255}.{number & 255}"


@cache
def _public_ids() -> frozenset[str]:
    """Return the identifiers of Windows' power plans and classes of devices, which name nobody's machine."""
    names = table("host/windows/names")
    return frozenset(item.strip("{}") for item in (*names["power_plans"], *names["device_classes"]))


class SecretsRemover(Anonymiser):
    """Keeps names, and removes logins, keys and tokens, which are secrets and no identity."""

    def __init__(self) -> None:
        super().__init__()
        self._rules = [(URL_LOGIN, self._login)]

    def file(self, path: str, data: bytes) -> bytes:
        """Return a file without its secrets."""
        return self.data(excerpts.without_secrets(path, data))

    def output(self, command: str, output: str) -> str:  # noqa: ARG002
        """Return a command's output without logins."""
        return self.text(output)

    def description(self, description: dict[str, Any]) -> dict[str, Any]:
        """Return host.json without logins."""
        return dict(self.value(description))
