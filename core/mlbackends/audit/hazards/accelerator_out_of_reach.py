"""The runtime is installed but cannot use your accelerator.

Found by:  the reasons that the runtimes of AMD, Intel, Huawei and others give for devices that the kernel
           lists; device nodes that are missing or not accessible to this user.
No alarm:  an accelerator without its runtime, which nothing would use; closed nodes of AMD and Intel GPUs
           and variables that hide them, which have their own hazards; NVIDIA GPUs.
Severity:  a note for Level Zero without Intel's driver: other packages install its loader.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Presence

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ()
WHY = "Frameworks find no device of that kind: they stop, or silently compute on the CPU."
FIX = (
    "Install the vendor's user-space driver in the release of the kernel module; join the group of the "
    "device nodes, and pass them to containers."
)
SOURCES = (
    "oneapi-src/level-zero#140",
    "oneapi-src/level-zero-tests#32",
    "ROCm/hip#1721",
)
_PROBES = ("rocm", "xpu", "ascend", "gaudi", "neuron", "tpu")
_CODES = ("no-device", "no-driver", "permission-denied", "call-failed")
_OWN_PAGE = ("rocm", "xpu")
_HIDDEN = ("hidden-by-variable", "override-invalid")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each kind of accelerator that its runtime does not reach."""
    found = [name for name in _PROBES if report.devices(name) and report.libraries(name)]
    if not found:
        raise DoesNotApply("there is no accelerator with an installed runtime, other than NVIDIA's")
    for name in found:
        probe = report.probe(name)
        if probe is None or probe.presence is Presence.USABLE:
            continue
        if any(True for code in _HIDDEN for _ in report.warnings(name, code)):
            continue
        reasons = [reason for reason in probe.reasons if reason.code in _CODES]
        if name in _OWN_PAGE and any("/dev/" in reason.message for reason in reasons):
            continue
        card = report.devices(name)[0]
        for reason in reasons[:1]:
            yield Symptom(
                f"{reason.message}; the kernel lists {card.name or 'a card'} at {card.pci_address or '/dev'}",
                hint=reason.hint,
                evidence={f"{name}.reasons.code": [reason.code]},
                severity=Severity.NOTE if (name, reason.code) == ("xpu", "no-driver") else None,
            )
