"""Remove from a report what identifies this machine or its user, so that it can be published.

Values of the role "identity" become "redacted-1", "redacted-2", ...: equal values get equal numbers
everywhere. Host name, user name and home folder are replaced wherever they occur in a text; servers and
network addresses only in values of variables and addresses of packages: elsewhere 10.2.0.1 is a version.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.patterns import (
    HARDWARE_ADDRESS,
    HOME,
    LONG_ID,
    SID,
    URL_LOGIN,
    UUID,
    may_have_secrets,
    pattern,
    without_secrets,
)
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Device, Report

if TYPE_CHECKING:
    from mlbackends.model.usage import Usage

_LEAST_LETTERS = len("00:00:00:00:00:00")
_DEVICE_IDENTITY = ("uuid", "serial")
_IDENTIFYING = pattern(
    r"(?i)(?:^|[_\W])(?:serial|uuid|guid|host_?name|host|node_name|user|user_?name|login|owner|e?mail"
    r"|mac|address|boot_id|machine_id|job|job_name|token|secret|password)(?:$|[_\W])"
)
_ENDS = r"\s:;,\"'=<>()\[\]{}\0@|"
_START = rf"(?:^|(?<=[{_ENDS}]))(?:-[IL])?"
#: A path, after a character that may precede one; a compiler's -I and -L are part of it.
_PATH = pattern(rf"{_START}[/\\][^{_ENDS}]*")
_SEPARATOR = pattern(r"([/\\]+)")
_SYSTEM = r"/+(?:usr/(?!local/)|(?:proc|sys(?!/fs/cgroup/)|dev|etc|boot|lib\w*)(?![\w.-]))"
_OF_THE_SYSTEM = pattern(rf"(?:-[IL])?{_SYSTEM}")
_SYSTEM_PATH = rf"{_START}{_SYSTEM}[^{_ENDS}]*"

#: Names of people and machines that are also words: replacing them would change the meaning of a text.
#: The first two are those of every container of Windows.
COMMON_WORDS = frozenset({"containeradministrator", "containeruser", *table("host/common_words")})

_NUMBERS = (LONG_ID, SID, UUID, HARDWARE_ADDRESS)
_IPV4 = pattern(r"(?<![\w.-])(?<![^/]/)(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])")
_IPV6 = pattern(r"(?<![\w.:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])")
_SERVER = pattern(r"(?<=://)((?:[^/\s@]*@)?)([A-Za-z0-9](?:[\w.-]*\w)?)(?=[:/?#\s]|$)")
#: The address in a URL, in any text: a version never follows "://".
NUMERIC_SERVER = pattern(r"(?<=://)(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])")
_NAME = pattern(r"(?<![\w:.-])[A-Za-z](?:[\w.-]*\w)?")
#: Ends of their names.
_SERVER_VARIABLES = (
    "_ADDRESS", "_ADDR", "_HOST", "_HOSTS", "_HOSTNAME", "_HOSTNAMES", "_COMM_ID", "_NODELIST", "_SERVER",
    "_SERVERS",
)  # fmt: skip
#: Facts that hold variables by name.
_WITH_VARIABLES = ("variables", "environment")


class Names(Struct, frozen=True):
    """What identifies the machine and its user: the host's name, the user's name, and the home folder."""

    node: str = ""
    user: str = ""
    home: str = ""


def names_of(host: Host) -> Names:
    """Return the host's name, the user's name and the home folder, where files state them."""
    # A service or `env -i` has no HOME; the system's list of users has this one.
    number = str(host.system("user_id"))
    entries = [line.split(":") for line in host.read("/etc/passwd").splitlines()]
    entry = next((row for row in entries if len(row) > 5 and row[2] == number), [""] * 6)
    home = host.env("HOME") or host.env("USERPROFILE") or entry[5]
    user = host.env("USER") or host.env("LOGNAME") or entry[0]
    if host.platform == "win32":
        home, user = host.env("USERPROFILE").replace("\\", "/"), host.env("USERNAME")
    node = host.uname().get("nodename", "") or host.read("/proc/sys/kernel/hostname", 256)
    return Names(node=node, user=user or home.rstrip("/").rpartition("/")[2], home=home)


def host_names(names: Names) -> list[str]:
    """Return what the machine is called: whole, before the first dot, and as Windows' COMPUTERNAME."""
    short = names.node.partition(".")[0]
    windows = short.upper()[:15] if names.home[1:2] == ":" else short
    return list(dict.fromkeys((names.node, short, windows)))


def is_common(name: str) -> bool:
    """Return whether a name of a person or machine is also a common word or a probe's name."""
    return name.lower() in COMMON_WORDS or name.lower() in registry.names(registry.PROBES)


def in_texts(name: str, replacement: str) -> tuple[re.Pattern[str], Callable[[re.Match[str]], str]]:
    """Return the pattern that finds a name in a text, and the function that replaces it.

    The name ends at anything but letters and digits, so that it is removed from "/envs/NAME-torch" and
    "user-NAME.slice"; in the system's own paths only a whole word is. It must have three letters or more.
    """
    word = pattern(rf"(?<![\w-]){re.escape(name)}(?![\w-])")

    def replace(found: re.Match[str]) -> str:
        return word.sub(replacement, found[0]) if found[1] else replacement

    return pattern(rf"({_SYSTEM_PATH})|(?<![^\W_]){re.escape(name)}(?![^\W_])"), replace


def is_somebodys(address: str) -> bool:
    """Return whether numbers with dots are an address of one machine.

    127 is the local machine, 0 and 255 are all machines, 198.18 and 198.19 none (RFC 2544).
    """
    parts = [int(part) for part in address.split(".")]
    is_nobodys = parts[0] == 198 and parts[1] in (18, 19)
    return max(parts) <= 255 and parts[0] not in (0, 127, 255) and not is_nobodys


def without_addresses(
    text: str, server: Callable[[str], str], address: Callable[[str], str], variable: str = ""
) -> str:
    """Replace numeric addresses, the servers of URLs, and those in a variable that names servers.

    Public servers stay: they describe a package, not its user.
    """
    replacements: set[str] = set()

    def recorded(word: str) -> str:
        replacements.add(word)
        return word

    def named(name: str) -> str:
        lower = name.lower()
        public = table("host/public_servers")
        is_public = any(lower == domain or lower.endswith(f".{domain}") for domain in public)
        if is_public or lower == "localhost" or name in replacements or _IPV4.fullmatch(name):
            return name
        return recorded(server(name))

    def ipv4(found: re.Match[str]) -> str:
        is_address = is_somebodys(found[0]) and "VERSION" not in variable
        return recorded(address(found[0])) if is_address else found[0]

    def ipv6(found: re.Match[str]) -> str:
        import ipaddress

        try:
            parsed = ipaddress.IPv6Address(found[0])
        except ValueError:
            return found[0]
        is_nobody = parsed.is_loopback or parsed.is_unspecified
        return found[0] if is_nobody else recorded(address(found[0]))

    if "://" in text:
        text = _SERVER.sub(lambda found: found[1] + named(found[2]), text)
    text = _IPV4.sub(ipv4, text) if text.count(".") > 2 else text
    text = _IPV6.sub(ipv6, text) if text.count(":") > 1 else text
    if variable.endswith(_SERVER_VARIABLES) and "/" not in text:
        text = _NAME.sub(lambda found: named(found[0]), text)
    return text


def in_paths(name: str, replacement: str) -> tuple[re.Pattern[str], Callable[[re.Match[str]], str]]:
    """Return the pattern that finds paths, and the function that replaces a user's name as a part of one.

    The name may be of any length; the system's own paths stay.
    """

    def replace(path: re.Match[str]) -> str:
        if _OF_THE_SYSTEM.match(path[0]):
            return path[0]
        return "".join(replacement if part == name else part for part in _SEPARATOR.split(path[0]))

    return _PATH, replace


def redacted(report: Report, names: Names) -> Report:
    """Return the report without identifying values; `redacted` is then true in it."""
    hide = _Replacer(names)
    tree = msgspec.to_builtins(report)
    for name, probe in tree["probes"].items():
        facts = probe.get("facts", {})
        declared = facts_of(name) if facts else {}
        for fact, value in facts.items():
            if fact in declared and declared[fact].role == "identity":
                facts[fact] = hide.whole(value)
            else:
                facts[fact] = hide.addresses(fact, value)
        for device in probe.get("devices", ()):
            for field in _DEVICE_IDENTITY:
                if device.get(field):
                    device[field] = hide.whole(device[field])
        if name not in registry.names(registry.PROBES):
            for holder in (probe, *probe.get("libraries", ()), *probe.get("devices", ())):
                for field in {"facts", "volatile"} & holder.keys():
                    holder[field] = _without_identifying(holder[field], hide)
            warning = Reason(
                "unknown-probe",
                f"the probe {name} is not installed, so its identifying facts are not declared:"
                " those recognised by their names or a pattern were replaced",
                "install the probe's package, or read these facts before you share them",
            )
            probe["warnings"] = [*probe.get("warnings", ()), msgspec.to_builtins(warning)]
    tree = hide.inside(tree)
    tree["redacted"] = True
    return msgspec.convert(tree, Report)


def without_credentials(report: Report) -> Report:
    """Return the report without passwords and tokens; what names the machine and its user stays."""
    text = msgspec.json.encode(report).decode()
    if not may_have_secrets(text) and not URL_LOGIN.search(text):
        return report
    return msgspec.convert(each_text(msgspec.to_builtins(report), without_secrets, without_secrets), Report)


def each_text(value: Any, change: Callable[[str], str], change_key: Callable[[str], str]) -> Any:
    """Return a JSON value with each of its texts changed, and each of its keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [each_text(item, change, change_key) for item in value]
    if isinstance(value, dict):
        return {change_key(key): each_text(item, change, change_key) for key, item in value.items()}
    return value


def redacted_usage(usage: "Usage", names: Names) -> "Usage":
    """Return a sample of `backends top` without users' names and the arguments of programs."""
    hide = _Replacer(names)
    tree = msgspec.to_builtins(usage)
    for process in tree["processes"]:
        process["command"] = ""
        if process["user"] and not is_common(process["user"]):
            process["user"] = hide.whole(process["user"])
    return msgspec.convert({**hide.inside(tree), "redacted": True}, type(usage))


def _without_identifying(value: Any, hide: "_Replacer") -> Any:
    """Replace facts of an unknown probe if their names look identifying."""
    if isinstance(value, list):
        return [_without_identifying(item, hide) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: hide.whole(item) if _IDENTIFYING.search(key) else _without_identifying(item, hide)
        for key, item in value.items()
    }


class _Replacer:
    """Replaces identifying values, equal ones by equal texts."""

    def __init__(self, names: Names) -> None:
        self._numbers: dict[str, str] = {}
        self._texts: list[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]] = []
        home = names.home.rstrip("/")
        if len(home) > 2:
            # /root identifies nobody, and is a part of other paths, such as /opt/rh/gcc-toolset-13/root.
            before = r"(?<![\w.-])" if is_common(home[1:]) else ""
            self._texts.append((home, pattern(before + re.escape(home) + r"(?![\w.-])"), "~"))
        # "node7.cluster.example" may be "node7" in other places.
        hosts = [(name, "HOST") for name in host_names(names)]
        for name, stand_in in (*hosts, (names.user, "USER")):
            # Very short names would match inside other words.
            if len(name) > 2 and not is_common(name):
                self._texts.append((name, *in_texts(name, stand_in)))
        self._user = ""
        if names.user and not is_common(names.user):
            self._user = names.user
            self._paths, self._replace_user = in_paths(names.user, "USER")

    def whole(self, value: Any) -> Any:
        """Replace every text and number in an identifying value."""
        if isinstance(value, list):
            return [self.whole(item) for item in value]
        if isinstance(value, dict):
            return {key: self.whole(item) for key, item in value.items()}
        return self._numbers.setdefault(str(value), f"redacted-{len(self._numbers) + 1}")

    def addresses(self, fact: str, value: Any, variable: str = "") -> Any:
        """Replace servers and addresses in the variables that a fact holds, and in a URL."""
        if isinstance(value, dict):
            with_variables = fact in _WITH_VARIABLES
            return {
                key: self.addresses(fact, item, key if with_variables else "") for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.addresses(fact, item) for item in value]
        if isinstance(value, str) and (variable or "://" in value):
            return without_addresses(value, self._address, self._address, variable)
        return value

    def _address(self, text: str) -> str:
        """Replace an address, here and everywhere else, unless it is a word."""
        word: str = self.whole(text)
        if len(text) > 2 and not is_common(text):
            self._texts.append((text, pattern(rf"(?<![\w.-]){re.escape(text)}(?![\w-])"), word))
        return word

    def inside(self, value: Any) -> Any:
        """Replace names, UUIDs, hardware addresses and credentials inside every text below."""
        # Names of fields stay, even if the user has the same name; keys that are paths do not.
        return each_text(value, self._text, lambda key: self._text(key) if "/" in key or ":" in key else key)

    def _text(self, value: str) -> str:
        for name, whole, stand_in in self._texts:
            if name in value:
                value = whole.sub(stand_in, value)
        if self._user and (f"/{self._user}" in value or f"\\{self._user}" in value):
            value = self._paths.sub(self._replace_user, value)
        if "/home/" in value or "sers" in value:  # another user's
            value = HOME.sub(r"\1USER", value)
        for numbers in _NUMBERS if len(value) >= _LEAST_LETTERS else ():
            value = numbers.sub(lambda found: self.whole(found[0]), value)
        return NUMERIC_SERVER.sub(
            lambda found: self.whole(found[0]) if is_somebodys(found[0]) else found[0], without_secrets(value)
        )


assert set(_DEVICE_IDENTITY) < set(Device.__struct_fields__)
