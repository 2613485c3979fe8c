"""How each switch is set and read in Python, since not every one is an attribute.

Some are functions in torch.backends, and here too; some are read by a library when it is loaded.
"""

from mlbackends.switches.table import Flag

_ORDER = "cuda.sdp_priority_order"


def set_by(flag: Flag) -> str:
    """Return the Python that sets a switch, "" where nothing in Python does."""
    module = f"mlbackends.{flag.module}".rstrip(".")
    if flag.read_only or flag.reached == "variable":
        return ""
    if flag.reached == "attribute":
        return f"mlbackends.{flag.name}"
    if flag.reached == "flags":
        return f"{module}.set_flags() or {module}.flags()"
    if flag.name == _ORDER:
        return "mlbackends.sdpa_kernel([...], set_priority=True)"
    return _ours(flag.torch_set) or f'mlbackends.flag_store.write("{flag.name}", value)'


def read_by(flag: Flag) -> str:
    """Return the Python that reads a switch."""
    if flag.reached == "attribute":
        return f"mlbackends.{flag.name}"
    return _ours(flag.torch_get) or f'mlbackends.flag_store.read("{flag.name}")'


def told(flag: Flag) -> str:
    """Return in one sentence how a switch is set that is no attribute."""
    if flag.reached == "variable":
        return (
            f"{flag.name} is no attribute: {flag.variable} is read when a library is loaded, and nothing"
            f" in Python changes it; set the variable before, or use `backends run --set"
            f" {flag.name}=VALUE`"
        )
    sets, reads = set_by(flag), read_by(flag)
    return f"{flag.name} is no attribute: use {sets}" + (
        f"; {reads} reads it" if reads != sets else ""
    )


def _ours(function: str) -> str:
    """Return torch's public function under our name, "" for one of its private parts."""
    if not function or function.startswith("torch._C."):
        return ""
    return f"mlbackends.{function.removeprefix('torch.').removeprefix('backends.')}()"
