"""A mitigation in microcode slows gather instructions.

Found by:  cpu: gather_data_sampling is mitigated in microcode.
No alarm:  mitigations that slow calls into the kernel alone, which computing makes few of; it is a note,
           for Intel expects a minimal cost for most programs.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("cpu",)
WHY = (
    "Most programs cost little more with it. Where gathers are in the innermost loop, as in embeddings,"
    " index_select and sparse kernels, it can be much; that explains differences between machines that"
    " are otherwise alike."
)
MEND = (
    "Leave it where foreign code runs; measure before gather_data_sampling=off at boot, which is for"
    " trusted machines."
)
SOURCES = (
    "Intel, Gather Data Sampling Mitigation Performance Analysis, ID 785681",
    "https://docs.kernel.org/admin-guide/hw-vuln/gather_data_sampling.html",
)
WARNINGS = (("cpu", "mitigation-costs-speed"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probe found."""
    states = report.fact("cpu.mitigations", {})
    for warning in report.warnings("cpu", "mitigation-costs-speed"):
        yield from_warning(
            warning,
            evidence={
                "cpu.mitigations.gather_data_sampling": states.get("gather_data_sampling", "")
            },
        )
