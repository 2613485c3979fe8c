"""The attention backends for people: on a terminal, and in Markdown."""

from mlbackends.model.explanation import BackendEntry, BackendList
from mlbackends.sdpa.named_devices import HERE, NAMED
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import prose
from mlbackends_cli.text.prose import Passage


def printed(listed: BackendList, page: Page) -> str:
    """Return a passage for each backend."""
    passages = []
    for entry in listed.backends:
        lines = [("is", f"{entry.summary} ({_kind(entry)})")]
        lines += [("takes", "; ".join(entry.takes))] if entry.takes else []
        lines += [("can", ", ".join(entry.can))] if entry.can else []
        if entry.tolerance:
            limits = ", ".join(f"{dtype} {times:g}×" for dtype, times in entry.tolerance.items())
            limits += " the plain formula's error, and a few units in the last place beside it"
            lines.append(("may err", limits))
        for reason in entry.why_not_here:
            hint = f"; {reason.hint}" if reason.hint else ""
            lines.append(("not here", f"{reason.message} [{reason.code}]{hint}"))
        if not entry.why_not_here:
            lines.append(("here", "installed; --peers runs it" if entry.peer else "usable"))
        mark, color = ("✗", "31") if entry.why_not_here else ("✓", "32")
        # 39 ends the colour alone: the heading around it stays bold.
        mark = f"\033[{color}m{mark}\033[39m" if page.color else mark
        passages.append(Passage(f"{mark} {entry.name}", tuple(lines)))
    return page.fitted(prose.printed(passages, page))


def _kind(entry: BackendEntry) -> str:
    return f"{entry.answers_to}, a peer" if entry.peer else entry.answers_to


def markdown(listed: BackendList, _page: Page) -> str:
    """Return a table of the backends."""
    from mlbackends_cli.text.markdown import literal, table

    rows = [
        (
            each.name,
            _kind(each),
            "; ".join(each.takes),
            ", ".join(each.can),
            each.why_not_here[0].message if each.why_not_here else "yes",
        )
        for each in listed.backends
    ]
    heads = ("backend", "kind", "takes", "can", "usable here")
    return table(heads, [tuple(map(literal, row)) for row in rows]) + "\n"


def devices(page: Page) -> str:
    """Return the names that --device takes, with what each is."""
    lines = [*HERE.items(), *((each.name, each.title) for each in NAMED.values())]
    return prose.printed((Passage("Devices", tuple(lines)),), page)
