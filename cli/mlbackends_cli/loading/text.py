"""A resolution for people: what does not load, why, and what to type; the tree of files; who needs what."""

import os
from collections.abc import Callable, Iterable, Iterator

from mlbackends.base.errors import counted, joined
from mlbackends.base.mounts import which
from mlbackends.host.command import outcome_of
from mlbackends.loading.outcome import is_of
from mlbackends.model.loading import Fault, LoadedFile, Lookup, Need, PackageLoading, Resolution, Verdict
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import Passage, log_line, printed

_SIGNS = {
    Verdict.LOADS: ("✓", "green"),
    Verdict.FALLS_BACK: ("◐", "yellow"),
    Verdict.UNKNOWN: ("?", "yellow"),
    Verdict.BREAKS: ("✗", "red"),
    Verdict.FAILS: ("✗", "red"),
}
#: Seconds, characters and names: what one call of c++filt may take.
_DEMANGLING, _LONGEST, _MOST = 2.0, 4000, 200
#: Columns of the words before a text, so that commands are below each other.
_WIDTH = len("path")


def table(resolution: Resolution, page: Page, folders: Iterable[str], *, tree: bool) -> str:
    """Return what does not load and, with details, everything; folders: those of the packages."""
    short = _Shortening(resolution, folders)
    parts = [_lookup(found, resolution, page, short) for found in resolution.lookups]
    if tree:
        parts += [_tree(package, page, short) for package in resolution.packages]
    elif not resolution.lookups:
        plain = _demangled(resolution)
        # Of packages that load there is only a number, unless one was asked for.
        listed = [
            package
            for package in resolution.packages
            if page.details or package.verdict is not Verdict.LOADS or len(resolution.packages) == 1
        ]
        parts += [_package(package, resolution, page, short, plain) for package in listed]
        if len(resolution.packages) > 1 or not resolution.packages:
            parts.append(f"{_summary(resolution)}\n")
    parts += [page.styled(note, "dim") + "\n" for note in resolution.notes]
    if short.is_used:
        parts.append(page.styled(f"Paths without a leading / are below {short.folder}", "dim") + "\n")
    return page.fitted("".join(parts))


def _summary(resolution: Resolution) -> str:
    counts = {verdict: [p.verdict for p in resolution.packages].count(verdict) for verdict in Verdict}
    plural = {
        Verdict.LOADS: "load",
        Verdict.FALLS_BACK: "load, then fall back",
        Verdict.BREAKS: "load, then fail",
        Verdict.FAILS: "do not load",
    }
    noun = "file" if all("/" in package.name for package in resolution.packages) else "package"
    found: list[str] = []
    for verdict, count in counts.items():
        words = verdict if count == 1 else plural.get(verdict, verdict)
        if count:
            found.append(f"{count if found else counted(count, noun)} {words}")
    return "; ".join(found) or "no package has a compiled file"


def _title(package: PackageLoading) -> str:
    return f"{package.name} {package.version}".strip()


def _package(
    package: PackageLoading,
    resolution: Resolution,
    page: Page,
    short: "_Shortening",
    plain: dict[str, str],
) -> str:
    sign, colour = _SIGNS[package.verdict]
    first = next(iter(package.faults), None)
    heading = f"{sign} {short(_title(package))} {package.verdict}"
    for other in resolution.packages:
        if first and first.package == other.name != package.name and is_of(first, other):
            cause = "does not" if other.verdict is Verdict.FAILS else f"lacks {first.name}"
            return page.styled(f"{heading}: {other.name} {cause}", f"bold {colour}") + "\n"
    if package.after:
        heading += f", but only after `import {', '.join(package.after)}`"
    shown = list(package.faults or package.fallbacks)
    if page.details:
        shown += [*package.fallbacks, *package.parts]
    by_message: dict[str, Fault] = {}
    for fault in shown:  # several files may lack the same
        by_message.setdefault(fault.message, fault)
    shown = list(by_message.values())
    lines: list[tuple[str, str]] = []
    commands: dict[str, None] = {}
    for fault in shown if page.details else shown[:1]:
        lines += [(word, short(text)) for word, text in _rows(fault, plain)]
        commands |= dict.fromkeys([fault.command] if fault.command else [])
    if more := [fault.name for fault in shown[1:]] if not page.details else []:
        names = more if len(more) < 4 else [*more[:3], f"{len(more) - 3} more"]
        lines.append(("also", joined(list(dict.fromkeys(names)))))
    lines += [("", short(note)) for note in package.notes]
    if package.parts and not page.details:
        lines.append(
            ("", f"{counted(len(package.parts), 'part')} that its import leaves out: --all lists them")
        )
    text = printed((Passage(heading, tuple(lines)),), page, f"bold {colour}")
    return text + "".join(f"  {'type'.ljust(_WIDTH)}  {command}\n" for command in commands)


def _rows(fault: Fault, plain: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield "", log_line(fault.message)
    if fault.name in plain:
        yield "C++".ljust(_WIDTH), plain[fault.name]
    if len(fault.path) > 1:
        yield "path".ljust(_WIDTH), " → ".join(fault.path)
    if fault.others and fault.code == "not-opened-later":
        yield "also".ljust(_WIDTH), joined(list(fault.others))
    elif fault.others:
        yield "", f"and {counted(len(fault.others), 'other symbol')}"
    yield from _advice(fault)


def _advice(fault: Fault) -> Iterator[tuple[str, str]]:
    for word, text in (("why", fault.cause), ("do", fault.hint)):
        if text:
            yield word.ljust(_WIDTH), text


class _Shortening:
    """Leaves out the folder that the paths of most packages are below."""

    def __init__(self, resolution: Resolution, folders: Iterable[str]) -> None:
        text = str(resolution)
        used = {folder: text.count(f"{folder}/") for folder in folders if folder.endswith("-packages")}
        self.folder = max(used, key=lambda folder: used[folder], default="")
        self.is_used = False

    def __call__(self, text: str) -> str:
        short = text.replace(f"{self.folder}/", "") if self.folder else text
        self.is_used = self.is_used or short != text
        return short


def _demangled(resolution: Resolution) -> dict[str, str]:
    """Return the C++ names of the symbols that are lacking, by c++filt where it is installed."""
    faults = (fault for package in resolution.packages for fault in (*package.faults, *package.fallbacks))
    names = [fault.name for fault in faults if fault.name.startswith("_Z") and len(fault.name) < _LONGEST]
    names = list(dict.fromkeys(names))[:_MOST]
    program = which("c++filt", os.environ.get("PATH", os.defpath)) if names else ""
    if not program:
        return {}
    found = outcome_of((program, *names), _DEMANGLING, os.environ)
    plain = found.output.splitlines()
    if found.status or len(plain) != len(names):
        return {}
    return {name: log_line(text) for name, text in zip(names, plain, strict=True) if name != text}


# ---- the tree of files ----------------------------------------------------------------------------


def _tree(package: PackageLoading, page: Page, short: Callable[[str], str]) -> str:
    """Return each file once, below the first that needs it, with the step that finds it."""
    sign, colour = _SIGNS[package.verdict]
    files = {file.path: file for file in package.files}
    lines = [page.styled(f"{sign} {_title(package)} {package.verdict}", f"bold {colour}")]
    needed = {need.path for file in package.files for need in file.needs}
    printed: set[str] = set()
    roots = [file for file in package.files if file.path not in needed] or list(package.files[:1])
    stack = [(1, Need(file.path, file.path), file) for file in reversed(roots)]
    while stack:
        depth, need, file = stack.pop()
        step = need.step + (f" {short(need.via)}" if need.via else "")
        note = page.styled(f"  {step}", "dim") if step else ""
        path = short(need.path) if need.path else page.styled(f"{need.name} not found", "red")
        if need.path in printed:
            continue
        printed.add(need.path or need.name)
        lines.append(f"{'  ' * depth}{path}{note}")
        stack += [
            (depth + 1, below, files.get(below.path, LoadedFile(below.path)))
            for below in reversed(file.needs)
        ]
    return "\n".join([*lines, ""])


# ---- who needs what -------------------------------------------------------------------------------


def _lookup(found: Lookup, resolution: Resolution, page: Page, short: Callable[[str], str]) -> str:
    passages = []
    rows = [("", _needing(path, need, found.kind, short)) for path, need in found.needs.items()]
    nobody = [("", f"no file of these packages needs the {found.kind}")]
    passages.append(Passage(f"Who needs {found.name}", tuple(rows or nobody)))
    rows = [
        ("", " · ".join(filter(None, [short(one.path), one.package, "" if one.is_loaded else "not loaded"])))
        for one in found.definers
    ]
    verb = "has" if found.kind == "library" else "defines"
    passages.append(Passage(f"What {verb} it", tuple(rows) or (("", "no installed package"),)))
    faults = (f for p in resolution.packages for f in (*p.faults, *p.fallbacks, *p.parts))
    fault = next((f for f in faults if found.name in (f.name, *f.others)), None)
    advice = [(word, short(text)) for word, text in _advice(fault)] if fault else []
    passages += [Passage("What to do", tuple(advice))] if advice else []
    command = f"  {'type'.ljust(_WIDTH)}  {fault.command}\n" if fault and fault.command else ""
    return printed(passages, page) + command


def _needing(path: str, need: Need, kind: str, short: Callable[[str], str]) -> str:
    if kind == "symbol":
        return short(path) + (f" · version {need.step}" if need.step else "")
    if not need.path:
        return f"{short(path)}: not found"
    step = need.step + (f" {short(need.via)}" if need.via else "")
    return f"{short(path)}: {short(need.path)} · {step}"
