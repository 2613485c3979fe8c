"""Engines of quantized layers: which are here, and which one torch uses."""

from mlbackends.switches.conditions import engines
from mlbackends.switches.modules import install


class _SupportedEngines:
    """The engines that are here, by the probes."""

    def __get__(self, obj: object, objtype: object) -> list[str]:
        return engines()

    def __set__(self, obj: object, value: object) -> None:
        raise RuntimeError("Assignment not supported: supported_engines is read-only")


install(__name__, "QuantizedEngine", supported_engines=_SupportedEngines())
