"""HTML: one page that needs nothing but itself: what failed, the worst first, and all that was looked at."""

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import catalogue, checks
from mlbackends_cli.terminal import Page
from mlbackends_cli.web.document import document
from mlbackends_cli.web.elements import element, escaped, plain_table, section, words
from mlbackends_cli.web.findings_style import FINDINGS_STYLE
from mlbackends_cli.web.style import STYLE

_STYLE = f"""{STYLE}
{FINDINGS_STYLE}
.findings .advice{{margin-top:.4rem;grid-template-columns:2.6rem 1fr}}
.findings .advice pre{{margin:0;font-size:1rem;line-height:1.5}}
.fine{{color:var(--usable)}}
"""
_KINDS = {Severity.ERROR: "high", Severity.WARNING: "medium", Severity.NOTE: "note"}


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the page; what passed and what does not apply is open where the page asks for details."""
    failed = outcome.failed()
    nothing = words("p", "Nothing was found.", "fine")
    parts = [
        _header(outcome),
        "<main>\n",
        section("found", "Found", _findings(failed) if failed else nothing),
        _listed(outcome, Status.WAIVED, "Accepted until a day", is_open=True),
        _listed(outcome, Status.UNKNOWN, "Not checked", is_open=True),
        _listed(outcome, Status.SKIPPED, "Does not apply", is_open=page.details),
        _listed(outcome, Status.PASSED, "Passed", is_open=page.details),
        "</main>\n",
        _footer(outcome),
    ]
    return document(checks.heading(outcome), "".join(parts), _STYLE)


def _header(outcome: Outcome) -> str:
    said = [outcome.subject, f"as of {outcome.created}" if outcome.created else ""]
    boxes = [
        element("div", words("b", f"{count:,}"), words("span", word))
        for count, word in checks.counts(outcome)
    ]
    return (
        element(
            "header",
            words("h1", checks.line(outcome.title)),
            words("p", " · ".join(each for each in said if each), "sub"),
            element("div", *boxes, kind="key") if boxes else "",
        )
        + "\n"
    )


def _findings(failed: tuple[Check, ...]) -> str:
    return element("ul", *map(_finding, failed), kind="findings")


def _finding(check: Check) -> str:
    kind = _KINDS[check.severity]
    declared = checks.place(check)
    return element(
        "li",
        words("span", str(check.severity), f"severity {kind}"),
        words("strong", checks.sentence(check)),
        " ",
        words("code", f"[{checks.line(check.code)}]", "dim"),
        words("p", f"declared in {declared}", "dim") if declared else "",
        _advice(check),
        _evidence(check),
        kind=f"is-{kind}",
    )


def _advice(check: Check) -> str:
    rows = []
    for word, text in checks.advice(check):
        told = element("pre", words("code", text)) if word == "type" else escaped(text)
        rows.append(words("dt", word) + element("dd", told))
    if check.documentation:  # shown, not linked: it is what a file says
        rows.append(words("dt", "see") + words("dd", checks.line(check.documentation)))
    return element("dl", *rows, kind="advice") if rows else ""


def _evidence(check: Check) -> str:
    values = check.evidence
    body = [
        [
            element("th", words("code", name), scope="row"),
            words("td", catalogue.amount(name, values[name]) if name in values else value),
        ]
        for name, value in checks.evidence(check)
    ]
    if not body:
        return ""
    return element("details", words("summary", "what shows it"), plain_table((), body, "facts"))


def _listed(outcome: Outcome, status: Status, title: str, *, is_open: bool) -> str:
    found = outcome.with_status(status)
    if not found:
        return ""
    body = [
        [
            element("th", words("code", checks.line(check.code)), scope="row"),
            words("td", checks.cause(check)),
        ]
        for check in found
    ]
    opened = ' open=""' if is_open else ""
    title = element("summary", words("strong", title), words("span", f"{len(found):,}", "dim"))
    table = element("div", plain_table((), body, "facts"), kind="inside")
    return f'<details id="{status}"{opened}>{title}{table}</details>\n'


def _footer(outcome: Outcome) -> str:
    told = {"made by": outcome.tool, "schema": outcome.schema}
    rows = [words("dt", name) + words("dd", value) for name, value in told.items() if value]
    return element("footer", element("dl", *rows)) + "\n"
