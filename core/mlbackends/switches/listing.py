"""The switches as records: what each one is now, where that came from, who reads it, and how it is set."""

from mlbackends import __version__
from mlbackends.model.errors import UnknownName
from mlbackends.model.switches import SCHEMA, Switch, Switches
from mlbackends.switches import conditions, store
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.table import FLAGS, PROBED, Flag

_ACCEPTED = {
    "bool": "true, false",
    "bool or two": "true, false, or two of them",
    "counts": "int, or several with commas",
}


def listing(names: "tuple[str, ...]" = ()) -> Switches:
    """Return the named switches, all by default; "cudnn" stands for all below it.

    Raises UnknownName, with the nearest name.
    """
    flags = [_switch(flag) for flag in (matching(names) if names else FLAGS.values())]
    return Switches(SCHEMA, f"backends {__version__}", tuple(flags))


def matching(names: "tuple[str, ...]") -> "list[Flag]":
    """Return the switches that names stand for, in the order of the table."""
    for name in names:
        if name not in FLAGS and not members(name):
            raise UnknownName("switch", name, (*FLAGS, *groups()), "backends flags list")
    found = {each for name in names for each in (name, *members(name))}
    return [flag for flag in FLAGS.values() if flag.name in found]


def _switch(flag: Flag) -> Switch:
    problem = ""
    try:
        value = store.read(flag.name)
    except RuntimeError as error:
        value, problem = None, str(error)
    return Switch(
        name=flag.name,
        value=as_data(flag, value),
        default=as_data(flag, default(flag)),
        origin=store.origin(flag.name),
        obeyed_by=flag.obeyed_by,
        variable=flag.variable,
        accepts=accepts(flag),
        reached=flag.reached,
        doc=flag.doc,
        problem=problem,
    )


def default(flag: Flag) -> object:
    """Return what reading a switch gives where nothing sets it."""
    if flag.default is PROBED:
        return conditions.default(flag.name)
    if isinstance(flag.default, tuple) and flag.kind.annotation.startswith("bool"):
        return flag.default[0]
    return flag.default


def accepts(flag: Flag) -> str:
    """Return in a few words what a switch may be set to, "" where it cannot be set."""
    if flag.read_only:
        return ""
    words = getattr(flag.kind, "words", None)
    if words:
        return ("any order of " if flag.kind.name == "order" else "") + ", ".join(words)
    return _ACCEPTED.get(flag.kind.name, flag.kind.name)


def set_by(flag: Flag) -> str:
    """Return the Python that sets a switch, "" where nothing in Python does."""
    module = f"mlbackends.{flag.module}".rstrip(".")
    if flag.read_only or flag.reached == "variable":
        return ""
    if flag.reached == "attribute":
        return f"mlbackends.{flag.name}"
    if flag.reached == "flags":
        return f"{module}.set_flags() or {module}.flags()"
    if flag.name == "cuda.sdp_priority_order":
        return "mlbackends.sdpa_kernel([...], set_priority=True)"
    return _ours(flag.torch_set) or f'mlbackends.flag_store.write("{flag.name}", value)'


def read_by(flag: Flag) -> str:
    """Return the Python that reads a switch."""
    if flag.reached == "attribute":
        return f"mlbackends.{flag.name}"
    return _ours(flag.torch_get) or f'mlbackends.flag_store.read("{flag.name}")'


def how_to_set(flag: Flag) -> str:
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
