"""List switches: value, origin, and what reads each of them.

NAME is a switch or the beginning of several: cudnn, cuda.matmul. The values are the ones that a Python
process started here would have. Values in JSON are typed; null means that the library itself
chooses.

Examples:
  backends flags list
  backends flags list cuda.matmul mkldnn
  backends flags list --changed
  backends flags list --format json | jq '.flags[] | select(.origin != "default")'
"""

import click
from msgspec.structs import replace

from mlbackends.base.errors import joined
from mlbackends.model.switches import Switch, Switches
from mlbackends.switches import listing
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option, option
from mlbackends_cli.output import write
from mlbackends_cli.switches.commands.flags import apply, complete, with_values
from mlbackends_cli.terminal import page
from mlbackends_cli.text.plain import Group, Listing, setting

_SPLIT_K = "_split_k"


@documented()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete)
@option("--changed", "Only switches that differ from their default.")
@format_option("listing", "rows", about="Output format.")
@with_values
@OUTPUT
@COLOR
def command(
    names: tuple[str, ...],
    changed: bool,
    form: str,
    files: tuple[str, ...],
    settings: tuple[str, ...],
    output: str,
    color: str,
) -> int:
    apply(files, settings)
    switches = listing.listing(names)
    if changed:
        rows = tuple(flag for flag in switches.flags if flag.origin != "default")
        switches = replace(switches, flags=rows)
    style = page(color, output)
    if formats.has(form, "listing"):
        write(formats.text(form, "listing", _listing(switches, names), style), output)
    elif formats.has(form, "rows"):
        write(formats.text(form, "rows", switches.flags, style), output)
    else:
        write(formats.text(form, "record", switches, style), output)
    return exits.YES


def _listing(switches: Switches, names: tuple[str, ...]) -> Listing:
    """Group the switches by module; whether split-K is allowed is on the line of the switch that sets it.

    It has a separate line only if it was named in full: its name is too long for the table.
    """
    split_k = {
        flag.name: flag.value
        for flag in switches.flags
        if flag.name.endswith(_SPLIT_K) and flag.name not in names
    }
    modules: dict[str, list[Switch]] = {}
    for flag in switches.flags:
        if flag.name not in split_k:
            modules.setdefault(flag.name.rpartition(".")[0], []).append(flag)
    groups, marked = [], set()
    for at, (module, own) in enumerate(modules.items()):
        marked |= {(at, number) for number, flag in enumerate(own) if flag.origin != "default"}
        rows = []
        for switch in own:
            value = "?" if switch.problem else setting(switch.value)
            if switch.accepts.startswith("any order"):
                value = value.replace(", ", " → ")
            value += "" if split_k.get(switch.name + _SPLIT_K, True) else ", no split-K"
            is_default = switch.origin == "default"
            origin = f"{switch.origin}; default {setting(switch.default)}"
            value += " (default)" if is_default else f" ({origin})"
            readers = ", ".join(switch.used_by) or "nothing yet"
            rows.append((switch.name.rpartition(".")[2], value, readers))
        groups.append(Group(module or "mlbackends", tuple(rows), f"{module}." if module else ""))
    notes = [flag.problem for flag in switches.flags if flag.problem]
    if split_k:
        notes.append(
            "Switches that end in _split_k are on the lines of the switches that set them; `backends flags"
            " list NAME` shows one alone."
        )
    lacked = [f"{flag.name} ({flag.since})" for flag in switches.flags if flag.lacking]
    if lacked:
        torch = next(flag.lacking for flag in switches.flags if flag.lacking)
        notes.append(f"{torch} is installed here, and these need a newer one: {', '.join(lacked)}.")
    if not switches.flags:
        notes.append(f"no switch{f' of {joined([*names])}' if names else ''} differs from its default")
    return Listing(("switch", "value", "read by"), tuple(groups), tuple(notes), frozenset(marked))
