"""Loading: whether each package with compiled files loads, as `backends resolve` follows it from its files.

Finds:    the first fault of each package that does not load, and what one that loads does without.
Caveats:  of a live machine alone: a recording does not have the files. `backends info` follows the smallest
          packages, 64 MB in all, `backends doctor` and `info --deep` every one. A package that was imported,
          or whose extension module was opened, is judged by that. One that fails because another does, or
          lacks a package that it requires, is left out: the report of that one says it.
Source:   ld.so(8), and what core/mlbackends/loading names.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions, owners_of
from mlbackends.host.python.requirements import required
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.outcome import fault_rows
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Verdict
from mlbackends.model.records import FactValue, Finding, Presence, ProbeReport

GROUP = "use"
CODES = {
    "not-followed": "The files of packages were not followed as the dynamic loader would.",
    "does-not-load": "A package's compiled files do not load, by the dynamic loader's rules.",
}
_QUICK_BYTES = 64 << 20


def find(host: Host) -> Finding:
    """Follow the packages with the smallest files, and of these the ones that require no other."""
    if not _can_be_followed(host):
        return _followed(host, ())
    first = {name: dists[0] for name, dists in distributions(host).items()}
    sizes = {name: sum(map(host.size, shared_objects(host, dist))) for name, dist in first.items()}
    compiled = sorted((size, name) for name, size in sizes.items() if shared_objects(host, first[name]))
    totals = accumulate(size for size, _ in compiled)
    large = {name for total, (_, name) in zip(totals, compiled, strict=True) if total > _QUICK_BYTES}
    small = (name for _, name in compiled if name not in large)
    quick = [name for name in small if not large & {need.name for need in required(host, first[name])}]
    return _followed(host, quick)


def find_all(host: Host) -> Finding:
    """Follow every package with compiled files."""
    return _followed(host, None)


def _can_be_followed(host: Host) -> bool:
    return host.is_live and not host.is_kept and host.platform == "linux"


def _followed(host: Host, names: Sequence[str] | None) -> Finding:
    if not _can_be_followed(host):
        why = "only the files of a live Linux machine are followed; see `backends resolve --root`"
        return Finding(presence=Presence.ABSENT, reasons=(Reason("not-followed", why),))
    resolution = resolve(host, names, is_quick=names is not None)
    rows: list[FactValue] = [*fault_rows(resolution)]
    return Finding(facts={"followed": len(resolution.packages), **({"faults": rows} if rows else {})})


def derive(facts: Mapping[str, Any], reports: Mapping[str, ProbeReport]) -> dict[str, FactValue]:
    """Return the facts without what an import, or a start of an accelerator, has decided."""
    decided: dict[str, set[str]] = {}
    for report in reports.values():
        verdicts = {Verdict.FAILS} if "imports" in report.facts else set()
        verdicts |= {Verdict.FALLS_BACK} if "accelerators" in report.facts else set()
        verdicts |= {Verdict.BREAKS} if report.presence is Presence.USABLE else set()
        imported: Any = report.facts.get("imports", {})
        users = [
            name
            for name, row in table("libraries/consumers")["packages"].items()
            if row["module"] in imported
        ]
        for name in (*owners_of(report.facts), *users):
            decided[name] = {str(verdict) for verdict in verdicts}
    rows = [row for row in facts.get("faults", ()) if row["verdict"] not in decided.get(row["package"], ())]
    return {**facts, "faults": rows} if rows else {key: facts[key] for key in facts if key != "faults"}


def judged(facts: Mapping[str, Any]) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
    """Return the reasons that something is broken, and the warnings, that follow from derived facts."""
    found: dict[str, list[Reason]] = {"does-not-load": [], "falls-back": []}
    for row in facts.get("faults", ()):
        code = "falls-back" if row["verdict"] == Verdict.FALLS_BACK else "does-not-load"
        words = f"{row['package']} {row['version']} {row['verdict']}: {row['message']}"
        found[code].append(Reason(code, words, row.get("command") or row.get("hint", "")))
    return tuple(found["does-not-load"]), tuple(found["falls-back"])
