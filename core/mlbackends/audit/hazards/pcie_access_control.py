"""GPU-to-GPU PCIe traffic is routed through the CPU."""

from mlbackends.audit.gpus import called, is_consumer_card, numbers
from mlbackends.audit.hazard import (
    DoesNotApply,
    NotReported,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for a translating IOMMU, and one for switches that redirect."""
    if report.fact("host.machine") != "x86_64":
        raise DoesNotApply("this applies only to x86")
    if report.need("host.virtualisation") != "none":
        raise DoesNotApply("a virtual machine needs the IOMMU of its host")
    gpus = [  # those that may copy to each other
        gpu
        for gpu in report.devices("nvidia")
        if gpu.kind == "cuda" and gpu.facts.get("kernel_driver") == "nvidia" and not is_consumer_card(gpu)
    ]
    if len(gpus) < 2:
        raise DoesNotApply("there are fewer than two NVIDIA GPUs that copy to each other over PCIe")
    domains = {str(gpu.facts["iommu_domain"]) for gpu in gpus if "iommu_domain" in gpu.facts}
    parameters = report.fact("host.kernel_parameters", {})
    translating = sorted(domain for domain in domains if domain.startswith("DMA"))
    if translating:
        yield Symptom(
            f"the addresses of {len(gpus)} GPUs are translated (IOMMU domain {translating[0]});"
            " copies between them need iommu=pt",
            hint="add iommu=pt to the kernel's parameters, and reboot",
            evidence={
                "nvidia.devices.0.iommu_domain": translating[0],
                "host.kernel_parameters": dict(parameters),
            },
        )
    redirected = [gpu for gpu in gpus if gpu.facts.get("peers_redirected")]
    if redirected:
        message = "a PCIe switch routes the traffic between these GPUs through the CPU (ACS):"
        yield Symptom(
            f"{message} {', '.join(map(called, redirected))}",
            hint="switch ACS off in the firmware, or on each switch with setpci (ECAP_ACS+0x6.w=0000)",
            evidence={f"nvidia.devices.{gpu.index}.peers_redirected": True for gpu in redirected},
        )
    has_nvlink = any("nvlinks" in pair for pair in report.fact("nvidia.topology", []))
    at_root = [gpu for gpu in gpus if gpu.facts.get("root_port_redirects")]
    if len(at_root) > 1 and not has_nvlink and not translating and not redirected:
        yield Symptom(
            f"the root ports of {numbers(at_root)} send the traffic between them through the IOMMU"
            " (ACS); on some boards NCCL then hangs",
            hint="if NCCL hangs, switch ACS off in the firmware or with setpci (ECAP_ACS+0x6.w=0000)",
            evidence={f"nvidia.devices.{gpu.index}.root_port_redirects": True for gpu in at_root},
            severity=Severity.NOTE,
        )
    passes = "pt" in str(parameters.get("iommu", "")) or parameters.get("iommu.passthrough") == "1"
    if not domains and not redirected and not passes:
        raise NotReported("the IOMMU domain of the GPUs is not reported")
