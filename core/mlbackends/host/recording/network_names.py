"""Stand-ins for servers and network addresses, where a text is known to hold such.

Elsewhere 10.2.0.1 is a version and `node7` a word, so this is asked for values of variables and for
addresses of packages, never for whole files.
"""

import re
from collections.abc import Callable

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
