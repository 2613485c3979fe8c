"""What a distribution requires of others, and whether what is installed fits.

Lines for extras are left out: metadata does not tell which extras were asked for. So is a line
whose marker cannot be told for this machine.

Source: PyPA, "Core metadata specifications", Requires-Dist; "Dependency specifiers" (PEP 508).

Versions of Python packages, and what a requirement's clauses allow.

`packaging` says the same and takes 20 ms to import, which is a fifth of a whole survey.

Source: PyPA, "Version specifiers" (PEP 440).
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution, distribution, normalised, requirements
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


_VERSION = pattern(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,18}(?:\.\d{1,18})*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d{1,18})?)?"
    r"(?:-(?P<implicit_post>\d{1,18})|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d{1,18})?)?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d{1,18})?)?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_CLAUSE = pattern(r"(===|==|~=|!=|>=|<=|>|<)\s*([^\s,]+)")
_LONGEST = 200

_FINAL = (3, 0)
"""Where a pre-release would stand: after every one."""
_BEFORE_PRE = (-1, 0)
"""1.0.dev1 comes before 1.0a1."""

Public = tuple[int, tuple[int, ...], tuple[int, int], int, tuple[int, int]]
"""Epoch, release without zeros at its end, pre-release, post-release, development release."""
Key = tuple[Public, tuple[tuple[int, str], ...]]
"""The public version, and the local part after the "+"."""


def version_key(text: str) -> Key | None:
    """Return what versions are ordered by; None for what is no version."""
    match = _VERSION.fullmatch(text.strip().lower()) if len(text) < _LONGEST else None
    if match is None:
        return None
    release = tuple(map(int, match["release"].split(".")))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    has_post = match["post"] is not None or match["implicit_post"] is not None
    post = int(match["post_number"] or match["implicit_post"] or 0) if has_post else -1
    dev = (0, int(match["dev_number"] or 0)) if match["dev"] else (1, 0)
    pre = _FINAL
    if match["pre"]:
        pre = (_PRE[match["pre"]], int(match["pre_number"] or 0))
    elif match["dev"] and not has_post:
        pre = _BEFORE_PRE
    parts = re.split(r"[-_.]", match["local"]) if match["local"] else []
    # A number stands above a word; the tuple's first item says which it is.
    local = tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
    return (int(match["epoch"] or 0), release, pre, post, dev), local


def same_public_version(one: str, other: str) -> bool:
    """Tell whether two versions are the same but for what stands after "+"."""
    keys = version_key(one), version_key(other)
    if keys[0] is None or keys[1] is None:
        return one.partition("+")[0] == other.partition("+")[0]
    return keys[0][0] == keys[1][0]


def satisfies(version: str, clauses: str) -> bool | None:
    """Tell whether a version fits clauses such as "<2.1,>=2.0"; None where they make no sense.

    Pre-releases are taken for what they are: what is installed was chosen, not proposed.
    """
    key = version_key(version)
    found = _CLAUSE.findall(clauses)
    if not found or _CLAUSE.sub("", clauses).strip(" ,"):
        return None
    verdicts = [_fits(version, key, sign, wanted) for sign, wanted in found]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _fits(version: str, key: Key | None, sign: str, wanted: str) -> bool | None:
    if sign == "===":
        return version.strip().lower() == wanted.lower()
    if key is None:
        return None
    if wanted.endswith(".*") and sign in ("==", "!="):
        prefix = _release(wanted.removesuffix(".*"))
        return None if prefix is None else _begins(version, prefix) is (sign == "==")
    needed = version_key(wanted)
    if needed is None:
        return None
    if sign in ("==", "!="):
        # 2.13.0 means 2.13.0+cpu as well; 2.13.0+cpu means nothing else.
        return ((key if needed[1] else (key[0], ())) == needed) is (sign == "==")
    if sign == "~=":
        release = _release(wanted)
        if release is None or len(release[1]) < 2:
            return None
        return key[0] >= needed[0] and _begins(version, (release[0], release[1][:-1]))
    return _in_order(key[0], sign, needed[0], has_local=bool(key[1]))


def _in_order(have: Public, sign: str, needed: Public, *, has_local: bool) -> bool:
    if sign == ">=":
        return have >= needed
    if sign == "<=":
        return have <= needed
    same_release, same_pre = have[:2] == needed[:2], have[2] == needed[2]
    has_post, names_post = have[3] >= 0, needed[3] >= 0
    if sign == "<":
        # "<2.0" does not mean 2.0rc1, unless the clause names a pre-release itself.
        of_that = same_release and (not names_post or (same_pre and have[3] == needed[3]))
        return have < needed and not (of_that and _is_pre(have) and not _is_pre(needed))
    # ">2.0" does not mean 2.0.post1 or 2.0+cpu.
    names_dev = needed[4][0] == 0
    if same_release and same_pre and has_post and not names_post and not names_dev:
        return False
    return have > needed and not (has_local and have == needed)


def _is_pre(version: Public) -> bool:
    return version[2] != _FINAL or version[4][0] == 0


def _release(text: str) -> tuple[int, tuple[int, ...]] | None:
    """Return epoch and release, with the zeros at its end."""
    match = _VERSION.fullmatch(text.strip().lower()) if len(text) < _LONGEST else None
    if match is None:
        return None
    return int(match["epoch"] or 0), tuple(map(int, match["release"].split(".")))


def _begins(version: str, prefix: tuple[int, tuple[int, ...]]) -> bool:
    have = _release(version)
    if have is None:
        return False
    padded = have[1] + (0,) * (len(prefix[1]) - len(have[1]))
    return have[0] == prefix[0] and padded[: len(prefix[1])] == prefix[1]
