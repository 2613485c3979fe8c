"""List the attention backends: what each supports, and whether it can run here.

The conditions are the ones by which a backend refuses a problem, so the list cannot disagree with them.
Peers are backends of other projects, which `backends sdpa check --peers` runs.

Examples:
  backends sdpa list
  backends sdpa list --format json | jq '.backends[] | select(.unavailable_reasons == []).name'
  backends sdpa list --devices
  backends sdpa list --devices --torch 2.13 --driver 570
"""

from typing import Any

from mlbackends.base.errors import BadInput
from mlbackends.model.explanation import BackendEntry, BackendList
from mlbackends.sdpa.explaining import explain
from mlbackends.sdpa.listing import listing
from mlbackends.sdpa.named_devices import GPUS, HERE, NAMED, products_by_target
from mlbackends.sdpa.problem_text import parse
from mlbackends_cli import exits, formats
from mlbackends_cli.attention.explain_page import matrix_text
from mlbackends_cli.attention.options import FORMAT, PYTHON, versions_of
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import VERSIONS, option
from mlbackends_cli.output import write
from mlbackends_cli.terminal import Page, page
from mlbackends_cli.text import plain
from mlbackends_cli.text.markdown import literal, table
from mlbackends_cli.text.plain import Passage

#: The problem that devices are asked about: every fused kernel of torch supports it on some GPU.
_PLAIN = "--shape 2,8,1024,64"


@documented()
@option("--devices", "List the names that --device takes instead; with versions, what torch supports.")
@VERSIONS
@PYTHON
@FORMAT
def command(devices: bool, pythons: tuple[str, ...], form: str, output: str, color: str, **words: Any) -> int:
    style = page(color, output)
    torch, versions = versions_of(words)
    if (torch or versions) and not devices:
        raise BadInput("versions are for --devices", "add it, or ask `backends sdpa explain`")
    if devices:
        if form != "table":
            raise BadInput(f"--devices has no format {form}; it is a table")
        if torch or versions:
            wordings = parse(f"{_PLAIN} --device {','.join(GPUS)}")
            write(matrix_text(explain(wordings, ("math",), torch, versions), style), output)
            return exits.YES
        lines = (*HERE.items(), *((device.name, device.title) for device in NAMED.values()))
        rows = tuple((target, ", ".join(slugs)) for target, slugs in products_by_target().items())
        passages = Passage("Devices", lines), Passage("Products, by what code is compiled for", rows)
        write(plain.printed(passages, style), output)
        return exits.YES

    own = {"table": printed, "markdown": markdown}
    write(formats.text_of(form, listing(pythons), style, **own), output)
    return exits.YES


def printed(listed: BackendList, page: Page) -> str:
    """Return a passage for each backend."""
    parts = []
    hints: set[str] = set()
    for entry in listed.backends:
        lines = [("is", f"{entry.summary} ({_kind(entry)})")]
        lines += [("supports", "; ".join(entry.takes))] if entry.takes else []
        lines += [("can", ", ".join(entry.can))] if entry.can else []
        if entry.tolerance:
            limits = ", ".join(f"{dtype} {times:g}×" for dtype, times in entry.tolerance.items())
            limits += " the error of plain attention, plus a few units in the last place"
            lines.append(("tolerance", limits))
        if not entry.unavailable_reasons:
            lines.append(("status", "installed; --peers runs it" if entry.peer else "usable"))
        for title, reasons in (
            ("not usable", entry.unavailable_reasons),
            ("slower", entry.slower_reasons),
        ):
            for reason in reasons:
                hint = f"; {reason.hint}" if reason.hint not in ("", *hints) else ""
                hints.add(reason.hint)
                lines.append((title, f"{reason.message} [{reason.code}]{hint}"))
        mark, color = ("✗", "red") if entry.unavailable_reasons else ("✓", "green")
        mark, color = ("!", "yellow") if entry.slower_reasons else (mark, color)
        passage = Passage(f"{mark} {entry.name}", tuple(lines))
        parts.append(plain.printed((passage,), page, f"bold {color}"))
    return page.fitted("\n".join(parts))


def _kind(entry: BackendEntry) -> str:
    return f"{entry.answers_to}, a peer" if entry.peer else entry.answers_to


def markdown(listed: BackendList, _page: Page) -> str:
    """Return a table of the backends."""
    rows = []
    for backend in listed.backends:
        reasons = (*backend.unavailable_reasons, *backend.slower_reasons)
        usable = reasons[0].message if reasons else "yes"
        texts = "; ".join(backend.takes), ", ".join(backend.can), usable
        rows.append((backend.name, _kind(backend), *texts))
    heads = ("backend", "kind", "supports", "can", "usable here")
    return table(heads, [tuple(map(literal, row)) for row in rows]) + "\n"
