"""A GPU's PCIe link has fewer lanes than card and slot support."""

from mlbackends.audit.gpus import called
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms

_OF_LAPTOPS = "It cannot be reseated in a laptop: update the firmware and check its power settings."
_KINDS = {"nvidia": "cuda", "rocm": "rocm"}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose link is narrower than both of its ends."""
    if report.fact("host.virtualisation", "none") != "none":
        raise DoesNotApply("a virtual machine does not report the real link")
    looked_at, is_laptop = 0, report.fact("host.is_laptop")
    for probe, kind in _KINDS.items():
        for gpu in report.devices(probe):
            now = gpu.volatile.get("pcie_width")
            # NVIDIA's GPUs and Instincts keep the width of their links while they are idle.
            is_steady = gpu.kind == "cuda" or gpu.capability.startswith("gfx9")
            if gpu.kind != kind or not isinstance(now, int) or not is_steady:
                continue
            looked_at += 1
            ends = (gpu.facts.get("max_pcie_width"), gpu.facts.get("max_pcie_slot_width"))
            most = min((width for width in ends if isinstance(width, int)), default=0)
            if 0 < now < most:
                names = ("max_pcie_width", "max_pcie_slot_width")
                evidence = {name: gpu.facts[name] for name in names if name in gpu.facts}
                evidence["pcie_width"] = now
                yield Symptom(
                    f"the PCIe link of {called(gpu)} has {now} lanes; card and slot support {most}",
                    hint=_OF_LAPTOPS if is_laptop or "Laptop" in gpu.name else "",
                    evidence={
                        f"{probe}.devices.{gpu.index}.{name}": value for name, value in evidence.items()
                    },
                )
    if not looked_at:
        raise DoesNotApply("no GPU reports the width of its link")
