"""The switches as records: what each one is now, where that came from, who reads it, and how it is set."""

import sys

from mlbackends.base.errors import UnknownName
from mlbackends.base.version import __version__
from mlbackends.model import switches as records
from mlbackends.switches import conditions, store
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.table import PROBED, SWITCHES, Switch

_ACCEPTED = {
    "bool": "true, false",
    "bool or two": "true, false, or two of them",
    "counts": "int, or several separated by commas",
}


def listing(names: "tuple[str, ...]" = ()) -> records.Switches:
    """Return the named switches, all by default; "cudnn" means all below it.

    Raises UnknownName, with the nearest name.
    """
    listed = []
    torch = installed_torch()
    for switch in matching(names) if names else SWITCHES.values():
        value, problem = None, ""
        try:
            value = store.read(switch.name)
        except RuntimeError as error:
            problem = str(error)
        listed.append(
            records.Switch(
                name=switch.name,
                value=as_data(switch, value),
                default=as_data(switch, default(switch)),
                origin=store.origin(switch.name),
                used_by=switch.used_by,
                variable=switch.variable,
                accepts=accepts(switch),
                reached=switch.reached,
                doc=switch.doc,
                problem=problem,
                since=switch.needed_torch(value),
                lacking=lacking(switch, value, torch),
            )
        )
    return records.Switches(records.SCHEMA, f"backends {__version__}", tuple(listed))


def matching(names: "tuple[str, ...]") -> "list[Switch]":
    """Return the switches of names and groups, in the order of the table."""
    for name in names:
        if name not in SWITCHES and not members(name):
            raise UnknownName("switch", name, (*SWITCHES, *groups()), "backends flags list")
    found = {listed for name in names for listed in (name, *members(name))}
    return [switch for switch in SWITCHES.values() if switch.name in found]


def default(switch: Switch) -> object:
    """Return what reading a switch gives where nothing sets it."""
    if switch.default is PROBED:
        return conditions.default(switch.name)
    if isinstance(switch.default, tuple) and switch.kind.annotation.startswith("bool"):
        return switch.default[0]
    return switch.default


def installed_torch() -> str:
    """Return the version of torch here, the imported one's first; "" where there is none."""
    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import distribution

    imported = getattr(sys.modules.get("torch"), "__version__", "")
    dist = None if imported else distribution(Host(), "torch")
    return str(imported) or (dist.version if dist else "")


def lacking(switch: Switch, value: object, torch: str) -> str:
    """Return "torch X" where that version is older than a switch, or than its value; "" otherwise."""
    from mlbackends.base.specifiers import satisfies

    needed = switch.needed_torch(value)
    return f"torch {torch}" if torch and needed and satisfies(torch, f"<{needed}.dev0") else ""


def accepts(switch: Switch) -> str:
    """Return in a few words what a switch may be set to, "" where it cannot be set."""
    if switch.read_only:
        return ""
    words = getattr(switch.kind, "words", None)
    if words:
        return ("any order of " if switch.kind.name == "order" else "") + ", ".join(words)
    return _ACCEPTED.get(switch.kind.name, switch.kind.name)


def set_by(switch: Switch) -> str:
    """Return the Python that sets a switch, "" where nothing in Python does."""
    module = f"mlbackends.{switch.module}".rstrip(".")
    if switch.read_only or switch.reached == "variable":
        return ""
    if switch.reached == "attribute":
        return f"mlbackends.{switch.name}"
    if switch.reached == "flags":
        return f"{module}.set_flags() or {module}.flags()"
    if switch.name == "cuda.sdp_priority_order":
        return "mlbackends.sdpa_kernel([...], set_priority=True)"
    return _ours(switch.torch_set) or f'mlbackends.flag_store.write("{switch.name}", value)'


def read_by(switch: Switch) -> str:
    """Return the Python that reads a switch."""
    if switch.reached == "attribute":
        return f"mlbackends.{switch.name}"
    return _ours(switch.torch_get) or f'mlbackends.flag_store.read("{switch.name}")'


def how_to_set(switch: Switch) -> str:
    """Return in one sentence how a switch that is not an attribute is set."""
    if switch.reached == "variable":
        return (
            f"{switch.name} is not an attribute: {switch.variable} is read when a library is loaded, and"
            " nothing in Python changes it; set the variable before, or use `backends run --set"
            f" {switch.name}=VALUE`"
        )
    sets, reads = set_by(switch), read_by(switch)
    return f"{switch.name} is not an attribute: use {sets}" + (f"; {reads} reads it" if reads != sets else "")


def _ours(function: str) -> str:
    """Return torch's public function under our name, "" for one of its private parts."""
    if not function or function.startswith("torch._C."):
        return ""
    return f"mlbackends.{function.removeprefix('torch.').removeprefix('backends.')}()"
