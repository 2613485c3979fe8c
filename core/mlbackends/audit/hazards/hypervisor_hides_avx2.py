"""The virtual machine's processor is an old, generic one.

Found by:  cpu: a hypervisor below, a processor whose name is a hypervisor's invention, no AVX2.
No alarm:  an old processor without a hypervisor; a generic name with AVX2.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("cpu",)
WHY = (
    "The processor below has more than it may show. torch takes its slowest kernels, and wheels that"
    " were built for AVX die of an illegal instruction."
)
MEND = (
    "Give the machine the host's processor: type host in Proxmox, -cpu host in QEMU; then stop and start"
    " it. Live migration is unsafe from then on."
)
SOURCES = (
    "pytorch/pytorch#22338",
    "https://www.qemu.org/docs/master/system/qemu-cpu-models.html",
)
_INVENTED = ("QEMU Virtual CPU", "Common KVM processor", "Common 32-bit KVM processor")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the name is invented and AVX2 is not there."""
    if report.fact("cpu.hypervisor") is not True:
        raise DoesNotApply("no hypervisor is below an x86 processor")
    name = str(report.need("cpu.model_name"))
    if report.need("cpu.avx2") or not name.startswith(_INVENTED):
        return
    level = str(report.fact("cpu.x86_64_level", ""))
    yield Symptom(
        f'the hypervisor shows a "{name}" of level {level or "unknown"}, without AVX2',
        command="qm set VMID --cpu host" if "KVM" in name else "",
        evidence={"cpu.model_name": name, "cpu.x86_64_level": level, "cpu.hypervisor": True},
    )
