"""The hypervisor hides the L3 cache, without which torch's NNPACK does not start.

Found by:  the caches that the kernel lists for an x86 CPU with AVX2, without an L3 cache, in a virtual
           machine where NNPACK is installed; NNPACK's own error (51).
No alarm:  CPUs without AVX2, which NNPACK does not support; a machine that lists no caches at all.
"""

from mlbackends.audit.hazard import (
    DoesNotApply,
    NotReported,
    Problem,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
)
from mlbackends.model.records import Presence

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("nnpack", "cpu", "host")
WHY = (
    'torch prints "Could not initialize NNPACK! Reason: Unsupported hardware." and uses its other '
    "convolutions, which are correct and may be slower."
)
FIX = (
    "Let the hypervisor pass the caches through: <cache mode='passthrough'/> in libvirt, -cpu "
    "host,host-cache-info=on in QEMU; or torch.backends.nnpack.set_flags(False)."
)
SOURCES = ("Maratyszcza/NNPACK, src/init.c", "Maratyszcza/NNPACK#81", "Maratyszcza/NNPACK#207")
_WITH_AVX2 = ("AVX2", "AVX512")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the cache is hidden from an NNPACK that could work."""
    nnpack = report.probe("nnpack")
    if nnpack is None or not nnpack.libraries:
        raise DoesNotApply("NNPACK is not installed")
    if report.fact("host.virtualisation", "none") == "none":
        raise DoesNotApply("this is not a virtual machine")
    if report.fact("cpu.capability") not in _WITH_AVX2:
        raise DoesNotApply("NNPACK does not support this CPU")
    if nnpack.presence is Presence.USABLE:
        return
    caches = report.fact("cpu.caches", [])
    if not caches:
        raise NotReported("the kernel lists no caches")
    levels = sorted({cache.get("level", 0) for cache in caches if isinstance(cache, dict)})
    if 3 in levels:
        return
    shown = ", ".join(map(str, levels))
    yield Symptom(
        f"this virtual machine reports only caches of level {shown}; NNPACK needs level 3",
        evidence={
            "cpu.caches.level": levels,
            "host.virtualisation": report.fact("host.virtualisation"),
        },
    )
