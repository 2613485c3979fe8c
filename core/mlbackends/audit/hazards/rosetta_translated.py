"""Python for Intel runs on an Apple chip, translated.

Found by:  host and cpu: sysctl.proc_translated is 1.
No alarm:  Intel machines; Python for arm64.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("host",)
WHY = (
    "Rosetta translates the whole process, and AVX is not there before macOS 15; torch's last wheels for"
    " Intel Macs are of 2.2, and the GPU is out of reach of most packages."
)
MEND = (
    "Install Python for arm64 (python.org, or Homebrew in /opt/homebrew), and make the environment anew"
    " with it."
)
SOURCES = (
    "https://developer.apple.com/documentation/apple-silicon/about-the-rosetta-translation-environment",
    "torch 2.3 release notes, macOS x86",
)
WARNINGS = (("mps", "translated"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the process is translated."""
    report.only_on("darwin")
    if not (report.fact("host.rosetta") or report.fact("cpu.translated")):
        return
    program = str(report.fact("python.executable", ""))
    yield Symptom(
        f"{program or 'this process'} is built for x86-64 and translated on"
        f" {report.fact('cpu.model_name', 'an Apple chip')}",
        evidence={"host.rosetta": True, "python.executable": program},
    )
