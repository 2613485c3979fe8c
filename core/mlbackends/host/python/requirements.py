"""The requirements of distributions, and whether the installed versions satisfy them.

Lines for extras are left out: metadata does not record which were wanted. So are lines whose marker cannot be
evaluated for this machine. Source: PyPA, "Core metadata specifications" and "Dependency specifiers".
"""

import ast
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from mlbackends.base.patterns import pattern
from mlbackends.base.specifiers import satisfies
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    distribution,
    distributions,
    metadata,
    normalised,
    version_of,
)

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "===", ast.IsNot: "~=",
}  # fmt: skip
_LONGEST_MARKER = 500
_SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}
_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy"}
_VERSIONS = ("python_version", "python_full_version")
_REQUIRES = pattern(r"^Requires-(Dist|Python):[ \t]*(.*?)\s*$", re.MULTILINE | re.IGNORECASE)
#: Variables of which a recorded machine has no value.
_OTHERS_VARIABLES = frozenset({"platform_release", "platform_version", "implementation_version"})
#: The commonest marker, which no installed package satisfies without its extra.
_FOR_EXTRA = pattern(r"""[^;|]*; *(?:\([^()]*\) and )?extra *== *["'][\w.-]+["']""")


class Requirement(Struct, frozen=True):
    """A requirement that applies here: "jaxlib", "<=0.10.2,>=0.10.2", and the installed version.

    text: the whole line, with its marker.
    """

    name: str
    clauses: str
    installed: str
    text: str = ""

    @property
    def pinned(self) -> str:
        """The one version that is allowed; "" if there are several."""
        version = self.clauses[2:].removeprefix("=").strip()
        is_one = self.clauses.startswith("==") and not any(sign in version for sign in " ,*")
        return version if is_one else ""

    @property
    def is_met(self) -> bool | None:
        """Whether the installed version satisfies it; None if that is not known."""
        if not self.installed:
            return False
        return True if not self.clauses else satisfies(self.installed, self.clauses)


def required(host: Host, dist: Distribution) -> list[Requirement]:
    """Return what a distribution requires on this machine, without its extras."""
    return [need for need, holds_here in _requirements(host, dist) if holds_here]


@once_per_host
def unmet(host: Host) -> list[dict[str, str]]:
    """Return what installed distributions require and do not have, as `pip check` does.

    Rows have package, version, needs, extras, wanted and installed. Beyond `pip check`, and as
    `uv pip check`, they include a Python that is not the required one, as needs "python".
    """
    rows = [
        {"package": dist.name, "version": dist.version, **row, "installed": need.installed}
        for dist, *_ in distributions(host).values()
        for need, _ in _requirements(host, dist)
        if need.is_met is not True and (row := _unmet(host, need))
    ]
    return [{name: text for name, text in row.items() if text} for row in rows]


def _unmet(host: Host, need: Requirement) -> dict[str, str]:
    """Return needs, extras and wanted of a requirement that `packaging` too finds not met; {} of another."""
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed
    from packaging.version import InvalidVersion

    try:
        parsed = Parsed(need.text)
        if parsed.marker is not None:
            named = set(re.findall(r"\w+", str(parsed.marker)))
            if not host.is_live and named & _OTHERS_VARIABLES:
                return {}
            if not parsed.marker.evaluate(marker_environment(host)):
                return {}
        if need.installed and parsed.specifier.contains(need.installed, prereleases=True):
            return {}
    except (InvalidRequirement, InvalidVersion, ValueError):
        return {}
    extras = ",".join(sorted(parsed.extras))
    return {"needs": need.name, "extras": extras, "wanted": str(parsed.specifier)}


def _requirements(host: Host, dist: Distribution) -> Iterator[tuple[Requirement, bool]]:
    """Yield the requirements that may apply here, and whether it is certain that they do."""
    environment: dict[str, str] = {}
    for kind, line in _REQUIRES.findall(metadata(host, dist)):
        if kind.lower() == "python":
            if version := str(host.python.get("version", "")):
                yield Requirement("python", line, version, f"python {line}"), False
            continue
        if _FOR_EXTRA.fullmatch(line):
            continue
        requirement, _, marker = line.partition(";")
        ends = (at for at, sign in enumerate(requirement) if not (sign.isalnum() or sign in "._-"))
        end = next(ends, len(requirement))
        clauses = requirement[end:].strip()
        clauses = clauses.partition("]")[2].strip() if clauses.startswith("[") else clauses
        if not end:
            continue
        if clauses.startswith("@"):  # a URL, which may contain a semicolon: " ;" ends it
            clauses, marker = "", line.partition(" ;")[2]
        holds_here: bool | None = True
        if marker.strip():
            environment = environment or marker_environment(host)
            holds_here = holds(marker.strip(), environment)
        if holds_here is not False:
            installed = distribution(host, requirement[:end])
            # A folder without metadata is not installed, as for older pips; a recording has that of few.
            if installed and host.is_live and not metadata(host, installed):
                installed = None
            version = version_of(host, installed) if installed else ""
            name = normalised(requirement[:end])
            yield Requirement(name, clauses.strip("() "), version, line), bool(holds_here)


# ---- markers -------------------------------------------------------------------------------------


def marker_environment(host: Host) -> dict[str, str]:
    """Return the values of a marker's variables, those that are known; no extra is wanted."""
    python = host.python
    version = str(python.get("version", ""))
    implementation = str(python.get("implementation", ""))
    values = {
        "sys_platform": host.platform,
        "platform_system": _SYSTEMS.get(host.platform, ""),
        "os_name": "nt" if host.platform == "win32" else "posix",
        "platform_machine": host.machine,
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "implementation_name": implementation,
        "platform_python_implementation": _IMPLEMENTATIONS.get(implementation, ""),
    }
    return {name: value for name, value in values.items() if value} | {"extra": ""}


def holds(marker: str, environment: Mapping[str, str | tuple[str, ...]]) -> bool | None:
    """Evaluate a marker; None if it uses an unknown variable or is not a marker.

    `packaging` does not have the third result. Markers have the grammar of Python's expressions except for
    two signs, which are replaced by two that no marker has.
    """
    if len(marker) > _LONGEST_MARKER or "\\" in marker:
        return None
    expression = marker.strip().replace("===", " is ").replace("~=", " is not ")
    try:
        return _evaluate(ast.parse(expression, mode="eval").body, environment)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _evaluate(node: ast.expr, environment: Mapping[str, str | tuple[str, ...]]) -> bool | None:
    if isinstance(node, ast.BoolOp):
        results = [_evaluate(value, environment) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        return decisive if decisive in results else None if None in results else not decisive
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return None
    have, required = (
        side.value if isinstance(side, ast.Constant) else environment.get(getattr(side, "id", ""))
        for side in (node.left, node.comparators[0])
    )
    sign = _SIGNS[type(node.ops[0])]
    if isinstance(have, str) and isinstance(required, (str, tuple)) and sign in ("in", "not in"):
        return (have in required) is (sign == "in")
    if not isinstance(have, str) or not isinstance(required, str):
        return None
    if getattr(node.left, "id", "") in _VERSIONS:
        return satisfies(have, f"{sign}{required}")
    if sign in ("==", "==="):
        return have == required
    return have != required if sign == "!=" else None
