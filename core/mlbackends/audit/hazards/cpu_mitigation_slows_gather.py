"""A mitigation in microcode slows gather instructions.

Found by:  cpu: gather_data_sampling is mitigated in microcode.
No alarm:  mitigations that slow calls into the kernel alone, which computing makes few of.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.NOTE
READS = ("cpu",)
WHY = (
    "Embeddings, index_select and sparse kernels read through gathers, which are several times slower"
    " with it; that explains differences between machines that are otherwise alike."
)
MEND = "Leave it where foreign code runs; gather_data_sampling=off at boot is for trusted machines."
SOURCES = ("Linux, admin-guide/hw-vuln/gather_data_sampling.rst", "Intel, INTEL-SA-00828")
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
