"""The runtime is installed but cannot use your accelerator."""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Presence

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
