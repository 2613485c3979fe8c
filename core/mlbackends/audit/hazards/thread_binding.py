"""Variables bind OpenMP threads to too few CPUs, or to those of other processes."""

from mlbackends.audit.environment import setting, settings
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.threads import bound
from mlbackends.base.quantities import parse_cpu_list

_UNBOUND = ("false", "none", "disabled", "no", "0")
_VARIABLES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND")


def symptoms(report: ReportView) -> Symptoms:
    """Yield each variable that binds threads to too few CPUs, or those of several processes alike."""
    variables = settings(report)
    # Of the OpenMP runtimes, Intel's and LLVM's read KMP_ variables.
    makers = {library.facts.get("runtime") for library in report.libraries("openmp")}
    if makers and makers.isdisjoint(("intel", "llvm")):
        variables.pop("KMP_AFFINITY", None)
    allowed = frozenset(parse_cpu_list(str(report.fact("limits.affinity", ""))))
    for binding in bound(variables):
        expected = {row["runtime"]: int(row["cpus"]) for row in report.need("limits.threads_expected")}
        threads = expected.get("OpenMP", 0)
        cpus = binding.within(allowed)
        # More threads than CPUs in all is another hazard's matter.
        if not 0 < cpus < min(threads, len(allowed) or threads):
            continue
        places = f"{cpus} CPUs" if cpus > 1 else "one CPU"
        yield Symptom(
            f"{setting(binding.variable, binding.value)} binds to {places}, but OpenMP starts"
            f" {threads} threads",
            command=f"unset {binding.variable}",
            evidence={
                f"environment.variables.{binding.variable}": binding.value,
                "limits.threads_expected.OpenMP.cpus": threads,
                "limits.affinity": str(report.fact("limits.affinity", "")),
            },
        )
    ranks = variables.get("LOCAL_WORLD_SIZE", "")
    if not ranks or ranks == "1":
        return
    mask, online = report.fact("limits.affinity_cpus"), report.fact("limits.online_cpus")
    is_number = ranks.isascii() and ranks.isdecimal() and len(ranks) < 7
    if is_number and mask and online and mask * int(ranks) <= online:
        return  # the mask has no more CPUs than this process's share of the machine
    for name in _VARIABLES:
        value = variables.get(name, "")
        if value and value.lower().split(",")[0] not in _UNBOUND:
            yield Symptom(
                f"{setting(name, value)}, and {ranks[:10]} processes on this machine read it: each"
                " binds its threads to the same CPUs",
                command=f"unset {name}",
                evidence={
                    f"environment.variables.{name}": value,
                    "environment.variables.LOCAL_WORLD_SIZE": ranks,
                },
            )
