"""Uses: the BLAS and OpenMP runtimes that numpy, scipy, scikit-learn and torch use, and how many threads.

Finds:    the packages, and the copies that they use, by the headers of their compiled files; version, kernels
          and threads are from the probes of these copies.
Caveats:  an opened copy reports its kernels and threads; otherwise (--depth found, --root, --pid) threads
          follow from the runtime's rule, and on x86-64 OpenBLAS's kernels from the processor.
          A process that imports several packages has one copy of each soname, that of the first.
Source:   threadpoolctl, numpy.show_runtime and torch.__config__, which report the same from inside a process.
"""

from collections.abc import Mapping
from typing import Any

from mlbackends.base.reasons import UNCHECKED, Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.model.records import (
    Fact,
    FactValue,
    Finding,
    Library,
    Presence,
    ProbeReport,
    nonempty,
    speaking_copy,
)

GROUP = "use"
NEEDS = (
    "openblas", "mkl", "blis", "accelerate", "flexiblas", "blas", "openmp", "onednn",
    "numpy", "scipy", "torch", "limits",
)  # fmt: skip
_COLUMNS = "library, version, core, threads, threads_source, runtime, path, problem"
FACTS = (
    *(
        Fact(
            name.replace("-", "_"),
            dict[str, Any],
            f"What {name} uses: its version, and for blas, openmp and onednn: {_COLUMNS}.",
        )
        for name in table("libraries/consumers")["packages"]
    ),
    Fact("process", dict[str, Any], "With --pid: the same for mapped copies that no package uses."),
)
#: Probe -> its rule in limits.threads_expected; the others use OpenMP's.
_RULES = {"openblas": "OpenBLAS", "mkl": "MKL"}


def find(host: Host) -> Finding:
    """Look for the packages."""
    facts: dict[str, FactValue] = {}
    for name in table("libraries/consumers")["packages"]:
        if installed := distribution(host, name):
            facts[name.replace("-", "_")] = {"version": installed.version}
    reason = Reason("not-found", "no installed package uses a BLAS or OpenMP, by its files")
    return Finding(presence=Presence.ABSENT, facts=facts, reasons=(reason,))


def derive(facts: Mapping[str, FactValue], reports: Mapping[str, ProbeReport]) -> dict[str, FactValue]:
    """Return what each package uses, from the reports of the probes of these libraries."""
    uses: dict[str, dict[str, FactValue]] = {}
    for probe in NEEDS[:8]:
        report = reports[probe]
        speaker = speaking_copy(probe, report.libraries)
        for library in report.libraries:
            own = {**library.facts, **(report.facts if library == speaker else {})}
            for user in library.used_by or (("process",) if library.used is True else ()):
                kind = probe if probe in ("openmp", "onednn") else "blas"
                use = uses.setdefault(user.replace("-", "_"), {})
                use.setdefault(kind, _use(probe, library, own, user, reports))
    for user in ("numpy", "scipy"):  # no header can name a framework of macOS, which is not a file
        for library in reports["accelerate"].libraries[:1]:
            if "accelerate" in str(reports[user].facts.get("blas", "")).lower():
                row = _use("accelerate", library, library.facts, user, reports)
                uses.setdefault(user, {}).setdefault("blas", row)
    return {
        name: {**(version if isinstance(version := facts.get(name), dict) else {}), **uses[name]}
        for name in (fact.name for fact in FACTS)
        if name in uses
    }


def _use(
    probe: str,
    library: Library,
    facts: Mapping[str, FactValue],
    user: str,
    reports: Mapping[str, ProbeReport],
) -> dict[str, FactValue]:
    if library.reasons and library.reasons[0].code not in UNCHECKED:
        return {"library": probe, "problem": library.reasons[0].message, "path": library.path}
    kernels = facts.get("kernels_used")
    core = ", ".join(map(str, kernels)) if isinstance(kernels, list) else ""
    threads, because = _threads(probe, facts, user, reports)
    runtime = facts.get("runtime") or facts.get("threading") or facts.get("cpu_runtime")
    has_openmp = any(user in library.used_by for library in reports["openmp"].libraries)
    if not runtime and probe != "openmp" and user == "torch" and has_openmp:
        runtime = "openmp"  # what libtorch_cpu has inside shares its runtime
    return nonempty({
        "library": facts.get("implementation", probe),
        "version": library.version,
        "core": core or facts.get("architecture") or facts.get("instruction_set"),
        "threads": threads,
        "threads_source": because,
        "runtime": runtime,
        "path": library.path,
    })  # fmt: skip


def _threads(
    probe: str, facts: Mapping[str, FactValue], user: str, reports: Mapping[str, ProbeReport]
) -> tuple[FactValue, str]:
    """Return how many threads a copy uses for a package, and the source of that number."""
    if user == "torch" and (own := reports["torch"].facts.get("threads")):
        return own, "reported by torch"
    if user != "torch" and (own := facts.get("threads") or facts.get("max_threads")):
        return own, "reported by the library"
    if facts.get("threading") == "serial":
        return 1, "it was built without threads"
    rule = _RULES.get(probe, "OpenMP") if facts.get("threading") != "openmp" else "OpenMP"
    expected: Any = reports["limits"].facts.get("threads_expected", [])
    rules = {row["runtime"]: row for row in expected}
    row = rules.get("torch" if user == "torch" else rule, {})
    count, because = row.get("cpus"), row.get("because", "")
    most = facts.get("built_for_threads")
    if isinstance(most, int) and count and most < count:
        return most, f"it was built for {most}"
    return count, because
