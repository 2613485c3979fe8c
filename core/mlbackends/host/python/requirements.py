"""What a distribution requires of others, and whether what is installed fits.

Lines for extras are left out: metadata does not tell which extras were asked for. So is a line
whose marker cannot be told for this machine.

Source: PyPA, "Core metadata specifications", Requires-Dist; "Dependency specifiers" (PEP 508).
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, distribution, normalised, requirements
from mlbackends.host.python.versions import satisfies
from mlbackends.model.patterns import pattern

_LINE = pattern(
    r"(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?P<clauses>\([^()]*\)|[^;()@]*?)\s*(?:;\s*(?P<marker>.*))?"
)
_TOKEN = pattern(
    r"\s*(\(|\)|and\b|or\b|not\s+in\b|in\b|===|[<>=!~]=|<|>|'[^']*'|\"[^\"]*\"|[a-z_.]+)"
)
_LONGEST_MARKER = 500
_SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}
_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}
_VERSIONS = ("python_version", "python_full_version")


class Requirement(Struct, frozen=True):
    """One requirement that holds here: "jaxlib", "<=0.10.2,>=0.10.2", and what is installed."""

    name: str
    clauses: str
    installed: str

    @property
    def pinned(self) -> str:
        """The one version that is allowed; "" where there are several."""
        match = re.fullmatch(r"={2,3}\s*([^\s,*]+)", self.clauses)
        return match[1] if match else ""

    @property
    def is_met(self) -> bool | None:
        """Whether what is installed fits; None where that cannot be told."""
        if not self.installed:
            return False
        return True if not self.clauses else satisfies(self.installed, self.clauses)


def required(host: Host, dist: Distribution) -> list[Requirement]:
    """Return what a distribution requires on this machine, without its extras."""
    return list(_required(host, dist))


def _required(host: Host, dist: Distribution) -> Iterator[Requirement]:
    environment: dict[str, str] = {}
    for line in requirements(host, dist):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        if match["marker"]:
            environment = environment or marker_environment(host)
            if not holds(match["marker"], environment):
                continue
        name = normalised(match["name"])
        found = distribution(host, name)
        clauses = match["clauses"].strip("() ")
        yield Requirement(name, clauses, found.version if found else "")


def marker_environment(host: Host) -> dict[str, str]:
    """Return the values of a marker's variables; what cannot be told is not in it."""
    python = host.python
    version = str(python.get("version", ""))
    implementation = str(python.get("implementation", ""))
    told = {
        "sys_platform": host.platform,
        "platform_system": _SYSTEMS.get(host.platform, ""),
        "os_name": "nt" if host.platform == "win32" else "posix",
        "platform_machine": host.machine,
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_name": implementation,
        "platform_python_implementation": _IMPLEMENTATIONS.get(implementation, ""),
    }
    return {name: value for name, value in told.items() if value}


def holds(marker: str, environment: dict[str, str]) -> bool | None:
    """Tell whether a marker holds; None where it is for an extra or cannot be understood."""
    if len(marker) > _LONGEST_MARKER or re.search(r"\bextra\b", marker):
        return None
    tokens = []
    at = 0
    marker = marker.strip()
    while at < len(marker):
        match = _TOKEN.match(marker, at)
        if match is None:
            return None
        tokens.append(match[1])
        at = match.end()
    try:
        verdict = _either(tokens, environment)
    except (IndexError, RecursionError):
        return None
    return None if tokens else verdict


def _either(tokens: list[str], environment: dict[str, str]) -> bool | None:
    verdicts = [_both(tokens, environment)]
    while tokens and tokens[0] == "or":
        tokens.pop(0)
        verdicts.append(_both(tokens, environment))
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _both(tokens: list[str], environment: dict[str, str]) -> bool | None:
    verdicts = [_one(tokens, environment)]
    while tokens and tokens[0] == "and":
        tokens.pop(0)
        verdicts.append(_one(tokens, environment))
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _one(tokens: list[str], environment: dict[str, str]) -> bool | None:
    if tokens[0] == "(":
        tokens.pop(0)
        verdict = _either(tokens, environment)
        return verdict if tokens.pop(0) == ")" else None
    left, sign, right = tokens.pop(0), " ".join(tokens.pop(0).split()), tokens.pop(0)
    have, wanted = _value(left, environment), _value(right, environment)
    if have is None or wanted is None:
        return None
    if sign in ("in", "not in"):
        return (have in wanted) is (sign == "in")
    if left in _VERSIONS:
        return satisfies(have, f"{sign}{wanted}")
    if sign in ("==", "==="):
        return have == wanted
    return have != wanted if sign == "!=" else None


def _value(token: str, environment: dict[str, str]) -> str | None:
    return token[1:-1] if token[0] in "'\"" else environment.get(token)
