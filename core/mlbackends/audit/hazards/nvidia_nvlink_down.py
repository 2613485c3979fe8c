"""A GPU has fewer active NVLinks than others of its model."""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import Device


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU that has fewer than the best of its model."""
    models: dict[str, list[tuple[int, Device]]] = {}
    for gpu in described_gpus(report):
        up = gpu.facts.get("nvlinks_active")
        if isinstance(up, int) and not gpu.facts.get("mig"):
            models.setdefault(gpu.name, []).append((up, gpu))
    for name, gpus in models.items():
        most = max(up for up, _ in gpus)
        for up, gpu in gpus:
            # Of cards that are joined in pairs, one without a bridge lacks nothing.
            if 0 < up < most or (up == 0 and gpu.facts.get("nvlinks_lead_to_switch")):
                yield Symptom(
                    f"{called(gpu)} has {up} active NVLinks; other {name} have {most}",
                    evidence={
                        f"nvidia.devices.{gpu.index}.nvlinks_active": up,
                        f"nvidia.devices.{gpu.index}.nvlinks": gpu.facts.get("nvlinks", 0),
                    },
                )
