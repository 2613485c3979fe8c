"""The instruction set level of the CPU, as torch.backends.cpu reports it."""

from mlbackends.switches import availability, store
from mlbackends.switches.modules import install

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Return the level of CPU kernels: "DEFAULT", "AVX2", "AVX512", "VSX", "Z VECTOR", "SVE128", "SVE256".

    What the hardware has, lowered by ATEN_CPU_CAPABILITY; from the probe `cpu`. A value that the
    variable cannot have is ignored, with a warning once a process.
    """
    store.problems()  # the first touch of the switches warns of wrong variables
    return str(availability.found_report("cpu").facts.get("capability", "DEFAULT"))


install(__name__, "_CpuModule")
