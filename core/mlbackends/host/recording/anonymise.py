"""Stand-ins for what names a machine and its user, in the files of a recorded machine.

Unlike a word of `mlbackends.model.redaction`, a stand-in has the form of what it stands for: a probe
reads the recorded file as it read the real one. The same value gets the same stand-in everywhere, so
that what was equal stays equal. What no probe reads of a file that names people is left out (`excerpts`).

Stand-ins for servers and network addresses, where a text is known to hold such.

Elsewhere 10.2.0.1 is a version and `node7` a word, so this is asked for values of variables and for
addresses of packages, never for whole files.

What names a machine and its user, for `mlbackends.model.redaction` to take out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlbackends.host.recording import excerpts
from mlbackends.model.patterns import HARDWARE_ADDRESS, URL_LOGIN, UUID
from mlbackends.model.redaction import COMMON_WORDS, Names, in_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlbackends.host.host import Host

HOST, USER = "host", "user"

_LONG_ID = re.compile(
    r"(?:(?<![0-9A-Za-z])|(?<=pod))(?=\d*[a-fA-F])(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{32})(?![0-9A-Za-z])"
)
"""A container's or a machine's."""
_AMD_GPU = re.compile(r"\b(GPU-)([0-9a-f]{16})(?![0-9a-f-])", re.IGNORECASE)
_AMD_NUMBER = re.compile(r"^(unique_id )([1-9][0-9]*)$", re.MULTILINE)
_HOME = re.compile(
    r"(?<!/dev)(?<!/etc)(?<!/usr)(?<!/sys)(/home/|/Users/|\\Users\\+)([^/\\\s:;,\"']+)"
)
_NO_LOGIN = "://***@"
_SHORTEST = 6
"""A shorter value, such as a job's number, stands in too many places where it means something else."""
_OF_THE_USER = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
_OF_THE_HOST = ("HOSTNAME", "HOST", "COMPUTERNAME")


class Disguise:
    """Replaces identifying text. `replaced` counts how often, by what it was.

    names: of the machine and its user. values: serial numbers and the like, as a report has them.
    """

    def __init__(self, names: Names | None = None, values: Iterable[str] = ()) -> None:
        names = names or Names()
        self.replaced: Counter[str] = Counter()
        self._numbers: dict[str, dict[str, int]] = {}
        self._rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = []
        self._network = NetworkNames(self._number)
        home = names.home.rstrip("/")
        if home.count("/") > 1:
            mac = home.startswith("/Users/")
            self._whole(home, "home folder", f"/Users/{USER}" if mac else f"/home/{USER}")
        self._rules.append((_HOME, self._other_home))
        for name in dict.fromkeys((names.node, names.node.partition(".")[0])):
            if len(name) > 2 and name.lower() not in COMMON_WORDS:
                self._whole(name, "host name", HOST)
        if names.user and names.user.lower() not in COMMON_WORDS:
            if len(names.user) > 2:
                self._whole(names.user, "user name", USER)
            replace = in_paths(names.user, USER)
            self._rules.append((replace.paths, lambda met: self._path(replace.inside(met), met)))
        self._rules += [(_AMD_GPU, self._amd_gpu), (_AMD_NUMBER, self._amd_number)]
        for value in sorted(set(values), key=len, reverse=True):
            known = UUID.fullmatch(value) or _AMD_GPU.fullmatch(value)
            if len(value) >= _SHORTEST and not known:
                self._whole(value, "serial number or the like", self._like(value))
        self._rules += [
            (UUID, self._uuid),
            (_LONG_ID, self._long_id),
            (HARDWARE_ADDRESS, self._mac),
        ]
        self._rules.append((URL_LOGIN, self._login))

    def text(self, text: str) -> str:
        """Return a text with stand-ins."""
        for pattern, stand_in in self._rules:
            text = pattern.sub(stand_in, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return a content with stand-ins; what is no UTF-8 is looked at byte for byte."""
        text = data.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def file(self, path: str, data: bytes) -> bytes:
        """Return what is kept of a file that a probe read under that path, with stand-ins."""
        kept = self.data(excerpts.excerpt(path, data, self._network.addresses))
        if path == "/etc/ld.so.cache" and kept != data:
            return self._loader_cache(data)
        return kept

    def output(self, command: str, output: str) -> str:
        """Return what is kept of a command's output, with stand-ins."""
        return self.text(excerpts.of_command(command, output))

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

    def description(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return what host.json holds, with stand-ins: by what a field means, however short it is."""
        told = self.value(told)
        if told.get("uname", {}).get("nodename"):
            told["uname"] = {**told["uname"], "nodename": self._as(HOST, "host name")}
        variables = told.get("environment", {})
        told["environment"] = {name: self._variable(name, variables[name]) for name in variables}
        return told

    def _variable(self, name: str, value: str) -> str:
        if value and name in _OF_THE_USER:
            return self._as(USER, "user name")
        if value and name in _OF_THE_HOST:
            return self._as(HOST, "host name")
        return self._network.variable(name, value)

    def _as(self, stand_in: str, kind: str) -> str:
        self.replaced[kind] += 1
        return stand_in

    def _loader_cache(self, data: bytes) -> bytes:
        """Return a cache of the same libraries: in a file of positions no text may change its length."""
        from mlbackends.host.recording.cache_sketch import cache_of
        from mlbackends.libraries.loader_cache import read_cache

        return cache_of(each._replace(path=self.text(each.path)) for each in read_cache(data))

    def _whole(self, value: str, kind: str, stand_in: str) -> None:
        """Replace a value where it is no part of a longer word."""
        pattern = re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-])")
        self._rules.append((pattern, lambda _: self._as(stand_in, kind)))

    def _path(self, path: str, met: re.Match[str]) -> str:
        return path if path == met[0] else self._as(path, "user name")

    def _like(self, value: str) -> str:
        """Return a value of the same length and kinds of characters, which says nothing."""
        return re.sub(r"[A-Za-z]", "X", re.sub(r"[0-9]", "0", value))

    def _other_home(self, met: re.Match[str]) -> str:
        if met[2] in (USER, "USER"):
            return met[0]
        number = self._number("another user's home folder", met[2])
        return f"{met[1]}other-{number}"

    def _uuid(self, met: re.Match[str]) -> str:
        number = self._number("UUID", met[0].replace("_", "-"))
        return f"00000000-0000-4000-8000-{number:012x}".replace("-", met["sign"])

    def _long_id(self, met: re.Match[str]) -> str:
        number = self._number("container or machine id", met[0])
        return f"f{number:0{len(met[0]) - 1}x}"

    def _amd_gpu(self, met: re.Match[str]) -> str:
        return f"{met[1]}{self._number('UUID', met[2]):016x}"

    def _amd_number(self, met: re.Match[str]) -> str:
        return f"{met[1]}{self._number('UUID', f'{int(met[2][:20]):016x}')}"

    def _mac(self, met: re.Match[str]) -> str:
        sign = met["sign"]
        number = self._number("hardware address", met[0].replace(sign, ":"))
        others = met[0].count(sign) - 2
        return sign.join(
            ["02", *["00"] * others, f"{number >> 8 & 255:02x}", f"{number & 255:02x}"]
        )

    def _number(self, kind: str, value: str) -> int:
        """Return the number of a value among those of its kind, from 1."""
        self.replaced[kind] += 1
        known = self._numbers.setdefault(kind, {})
        return known.setdefault(value.lower(), len(known) + 1)

    def _login(self, met: re.Match[str]) -> str:
        return met[0] if met[0] == _NO_LOGIN else self._as(_NO_LOGIN, "login in an address")


class NoDisguise(Disguise):
    """Leaves everything as it is, but for logins, keys and tokens, which are secrets and no identity."""

    def __init__(self) -> None:
        super().__init__()
        self._rules = [(URL_LOGIN, self._login)]

    def file(self, path: str, data: bytes) -> bytes:
        """Return a file without its secrets."""
        return self.data(excerpts.without_secrets(path, data))

    def output(self, command: str, output: str) -> str:
        """Return a command's output as it is."""
        del command
        return self.text(output)

    def description(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return what host.json holds, without logins."""
        return dict(self.value(told))


_IPV4 = re.compile(r"(?<![\w.-])(?<![^/]/)(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w.:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")
_SERVER = re.compile(r"(?<=://)((?:[^/\s@]*@)?)([A-Za-z0-9](?:[\w.-]*\w)?)(?=[:/?#\s]|$)")
_NAME = re.compile(r"(?<![\w:.-])[A-Za-z](?:[\w.-]*\w)?")
_OF_SERVERS = re.compile(
    r"(?:_ADDRESS|_ADDR|_HOST|_HOSTS|_HOSTNAMES?|_COMM_ID|_NODELIST|_SERVERS?)$"
)
_PUBLIC = (
    "pypi.org", "pythonhosted.org", "github.com", "gitlab.com", "bitbucket.org", "anaconda.org",
    "anaconda.com", "conda.io", "pytorch.org", "nvidia.com", "huggingface.co", "googleapis.com",
    "intel.com", "amd.com", "apache.org", "python.org", "debian.org", "ubuntu.com",
)  # fmt: skip
"""Everybody's servers, which say something of a package and nothing of who uses it."""
_NUMBER_BITS = 16


class NetworkNames:
    """Replaces servers and addresses. number: gives the number of a value among those of its kind."""

    def __init__(self, number: Callable[[str, str], int]) -> None:
        self._number = number

    def variable(self, name: str, value: str) -> str:
        """Return a variable's value with stand-ins for what is an address by its form or its name."""
        value = self.addresses(value)
        if _OF_SERVERS.search(name) and "://" not in value and "/" not in value:
            return _NAME.sub(self._name, value)
        return value

    def addresses(self, text: str) -> str:
        """Return a text with stand-ins for numeric addresses and for the servers of its URLs."""
        text = _SERVER.sub(lambda met: met[1] + self._server(met[2]), text)
        return _IPV6.sub(self._ipv6, _IPV4.sub(self._ipv4, text))

    def _server(self, name: str) -> str:
        lower = name.lower()
        is_public = any(lower == each or lower.endswith(f".{each}") for each in _PUBLIC)
        if is_public or lower == "localhost" or _IPV4.fullmatch(name):
            return name
        return f"server-{self._number('server', lower)}.example"

    def _name(self, met: re.Match[str]) -> str:
        return met[0] if met[0].lower() == "localhost" else self._server(met[0])

    def _ipv4(self, met: re.Match[str]) -> str:
        parts = [int(part) for part in met[0].split(".")]
        # 127 is this machine, 0 and 255 are everybody; 198.18 and 198.19 are nobody (RFC 2544).
        if max(parts) > 255 or parts[0] in (0, 127, 255):
            return met[0]
        number = self._number("network address", met[0])
        return f"198.18.{number >> 8 & 255}.{number & 255}"

    def _ipv6(self, met: re.Match[str]) -> str:
        import ipaddress

        try:
            address = ipaddress.IPv6Address(met[0])
        except ValueError:
            return met[0]
        if address.is_loopback or address.is_unspecified:
            return met[0]
        number = self._number("network address", met[0])
        return f"2001:db8::{number & (1 << _NUMBER_BITS) - 1:x}"


def names_of(host: Host) -> Names:
    """Return the host's name, the user's, and the home folder, as far as they can be told."""
    # A service or `env -i` has no HOME; what the system has written down of this user is asked too.
    number = str(host.system("user_id"))
    entries = [line.split(":") for line in host.read("/etc/passwd").splitlines()]
    entry = next((each for each in entries if len(each) > 5 and each[2] == number), [""] * 6)
    home = host.env("HOME") or host.env("USERPROFILE") or entry[5]
    user = (
        host.env("USER") or host.env("LOGNAME") or entry[0] or home.rstrip("/").rpartition("/")[2]
    )
    node = host.uname().get("nodename", "") or host.read("/proc/sys/kernel/hostname", 256)
    return Names(node=node, user=user, home=home)
