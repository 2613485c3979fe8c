"""Python for x64 runs on Windows for Arm, emulated.

Found by:  cpu: the process is of another processor than the system (translated); host: native_machine.
No alarm:  Python for Arm64; a machine with a processor of Intel or AMD.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("cpu", "host")
WHY = (
    "Windows translates each instruction, not every build of it has AVX, and a process can load no DLL of the"
    " other kind; numpy and torch have wheels for Arm64."
)
MEND = "Install Python for Arm64, and make the environment anew with it."
SOURCES = (
    "https://learn.microsoft.com/windows/arm/apps-on-arm-x86-emulation",
    "pytorch/pytorch#150191",
    "unslothai/unsloth#10282",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the process is emulated."""
    report.only_on("win32")
    if report.fact("cpu.translated"):
        program = str(report.fact("python.executable", "")) or "this process"
        native = report.fact("host.native_machine", "Arm64")
        yield Symptom(
            f"{program} is emulated: this Windows is for {native}",
            evidence={"cpu.translated": True, "host.native_machine": native},
        )
