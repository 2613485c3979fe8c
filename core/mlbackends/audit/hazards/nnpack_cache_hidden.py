"""A hypervisor hides the third level of cache, without which torch's NNPACK does not start.

Found by:  the caches that the kernel lists of an x86 processor with AVX2, without one of level 3, in a
           virtual machine where NNPACK is installed; NNPACK's own word (51).
No alarm:  processors without AVX2, for which NNPACK is not made; a machine that lists no cache at all.
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
    'torch prints "Could not initialize NNPACK! Reason: Unsupported hardware." and takes its other'
    " convolutions, which are right and may be slower."
)
FIX = (
    "Let the hypervisor pass the caches on: <cache mode='passthrough'/> in libvirt,"
    " -cpu host,host-cache-info=on in QEMU; or torch.backends.nnpack.set_flags(False)."
)
SOURCES = ("Maratyszcza/NNPACK, src/init.c", "Maratyszcza/NNPACK#81", "Maratyszcza/NNPACK#207")
_WITH_AVX2 = ("AVX2", "AVX512")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the cache is hidden from an NNPACK that could work."""
    nnpack = report.probe("nnpack")
    if nnpack is None or not nnpack.libraries:
        raise DoesNotApply("NNPACK is not installed here")
    if report.fact("host.virtualisation", "none") == "none":
        raise DoesNotApply("this is no virtual machine")
    if report.fact("cpu.capability") not in _WITH_AVX2:
        raise DoesNotApply("NNPACK is not made for this processor")
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
        f"this virtual machine shows caches of level {shown} alone, and NNPACK needs to see level 3",
        evidence={
            "cpu.caches.level": levels,
            "host.virtualisation": report.fact("host.virtualisation"),
        },
    )
