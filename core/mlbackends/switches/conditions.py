"""What some switches depend on that is installed here: their defaults, and what they refuse for it."""

from mlbackends.base.errors import suggestion
from mlbackends.switches import availability
from mlbackends.switches.table import Switch


def default(name: str) -> object:
    """Return the default of a switch for which what is installed decides."""
    if name == "cudnn.benchmark_limit":
        return 10 if availability.is_found("cudnn") else None
    if name == "opt_einsum.enabled":
        return availability.is_importable("opt_einsum")
    if name == "opt_einsum.strategy":
        return "auto" if availability.is_importable("opt_einsum") else None
    if name == "quantized.engine":
        # In torch's order: torch 2.13, aten/src/ATen/Context.cpp.
        return next(filter(engines().__contains__, ("x86", "fbgemm", "qnnpack", "onednn")), "none")
    if name == "xnnpack.enabled":
        return availability.is_available("xnnpack")
    raise LookupError(name)


def engines() -> list[str]:
    """Return the quantized engines that are here, in torch's order."""
    found = [name for name in ("qnnpack", "onednn") if availability.is_available(name)]
    # torch's x86 engine is FBGEMM and oneDNN together, on x86 processors.
    if availability.is_available("fbgemm"):
        found += ["x86", "fbgemm"] if "onednn" in found else ["fbgemm"]
    return found


def refuse(switch: Switch, value: object) -> None:
    """Raise where a switch cannot take any value, or not this one, for what is installed here."""
    name = switch.name
    if switch.read_only:
        raise RuntimeError(f"Assignment not supported: {name} is read-only")
    if switch.reached == "variable":
        raise RuntimeError(
            f"Assignment not supported: {name} is read when a library is loaded; set the variable"
            f" {switch.variable} before the program starts, or use `backends run --set {name}=VALUE`"
        )
    if name == "mkldnn.allow_tf32":
        from mlbackends.switches.startup import warn

        switch.kind.checked(name, value)
        warn("TF32 acceleration of oneDNN exists on Intel GPUs only; the value is left at None")
    elif name == "quantized.engine":
        words = getattr(switch.kind, "words", ())
        if value in ("none", "", None):
            raise RuntimeError("quantized engine NoQEngine is not supported")
        if value not in words:
            message = f"{str(value)[:80]} is not a valid value for quantized engine"
            raise RuntimeError(f"{message}{suggestion(str(value), words)}")
        if value not in engines():
            supported = ", ".join(engines()) or "none"
            raise RuntimeError(f"quantized engine {value} is not supported; supported: {supported}")
    elif (
        name.startswith("opt_einsum.")
        and value not in (None, False)
        and not availability.is_importable("opt_einsum")
    ):
        raise ValueError(
            f"opt_einsum is not available, so {name} cannot be {value!r};"
            " torch then multiplies from left to right. Install opt-einsum"
        )
