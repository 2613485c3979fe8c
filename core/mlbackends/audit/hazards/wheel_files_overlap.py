"""Two packages own the same files, and one overwrote the other's."""

from mlbackends.audit.environment import FRAMEWORKS, uninstall
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

_LIBRARIES = (".so", ".pyd", ".dylib", ".dll")
_ASIDE = frozenset({"test", "tests", "doc", "docs", "example", "examples", "benchmarks", "scripts"})


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each pair of packages."""
    # The distributions of one framework, which its probe has found next to each other.
    installed = [report.fact(f"{name}.installations", []) for name in FRAMEWORKS]
    flavours = [{installation["name"] for installation in flavour} for flavour in installed]
    pairs = report.fact("packages.owned_twice", [])
    for pair, warning in zip(pairs, report.warnings("packages", "file-owned-twice"), strict=False):
        names = {pair["first"], pair["second"]}
        majors = [names.isdisjoint(own) for own in report.fact("packages.cuda_majors", {}).values()]
        if any(names <= together for together in flavours) or majors.count(False) > 1:
            continue
        top, slash, rest = pair["example"].partition("/")
        is_library = rest.endswith(_LIBRARIES) or ".so." in rest
        severity = None if is_library else Severity.WARNING
        yield from_warning(
            warning,
            command=uninstall(report, pair["first"], pair["second"]),
            evidence={"packages.owned_twice": [pair]},
            severity=severity if slash and top not in _ASIDE else Severity.NOTE,
        )
