"""The processor, as torch.backends.cpu tells it."""

from mlbackends.flag_modules import install

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Return the level of CPU kernels: "DEFAULT", "AVX2", "AVX512", "VSX", "Z VECTOR", "SVE256".

    What the hardware has, lowered by ATEN_CPU_CAPABILITY; from the probe `cpu`.
    """
    from mlbackends import answers

    return str(answers.looked_for("cpu").facts.get("capability", "DEFAULT"))


install(__name__, "_CpuModule")
