"""A resolution for people: what does not load, why, and what to type; the tree of files; who needs what."""

import os
from collections.abc import Iterable, Iterator
from functools import cache

from mlbackends.base.errors import counted, joined
from mlbackends.base.mounts import which
from mlbackends.host.command import outcome_of
from mlbackends.loading.outcome import is_of
from mlbackends.model.loading import Fault, LoadedFile, Lookup, Need, PackageLoading, Resolution, Verdict
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import plain
from mlbackends_cli.text.plain import Passage, log_line, printed

#: By verdict the sign, its colour, and what several packages do.
_SIGNS = {
    Verdict.LOADS: ("✓", "green", "load"),
    Verdict.FALLS_BACK: ("◐", "yellow", "load, then fall back"),
    Verdict.UNKNOWN: ("?", "yellow", "cannot be determined"),
    Verdict.BREAKS: ("✗", "red", "load, then fail"),
    Verdict.FAILS: ("✗", "red", "do not load"),
}
#: Seconds and characters: what one call of c++filt may take.
_DEMANGLING, _LONGEST = 2.0, 4000


def table(resolution: Resolution, page: Page, folders: Iterable[str], *, tree: bool) -> str:
    """Return what does not load and, with details, everything; folders: those of the packages."""
    return _Text(resolution, page, folders).whole(tree)


def _title(package: PackageLoading) -> str:
    return f"{package.name} {package.version}".strip()


class _Text:
    """A resolution as text, without the folder that the paths of most packages are below."""

    def __init__(self, resolution: Resolution, page: Page, folders: Iterable[str]) -> None:
        self.resolution, self.page = resolution, page
        text = str(resolution)
        used = {folder: text.count(f"{folder}/") for folder in folders if folder.endswith("-packages")}
        self._folder = max(used, key=lambda folder: used[folder], default="/")
        self._is_short = False

    def whole(self, tree: bool) -> str:
        """Return the page."""
        packages, page = self.resolution.packages, self.page
        parts = [self._lookup(found) for found in self.resolution.lookups]
        if tree:
            parts += map(self._tree, packages)
        elif not self.resolution.lookups:
            # Of packages that load there is only a number, unless one was asked for.
            is_listed = page.details or len(packages) == 1
            parts += [self._package(p) for p in packages if is_listed or p.verdict is not Verdict.LOADS]
            if len(packages) != 1:
                parts.append(f"{self._summary()}\n")
        notes = [*self.resolution.notes]
        if self._is_short:
            notes.append(f"Paths without a leading / are below {self._folder}")
        return page.fitted("".join([*parts, *(page.styled(note, "dim") + "\n" for note in notes)]))

    def _short(self, text: str) -> str:
        short = text.replace(f"{self._folder}/", "")
        self._is_short = self._is_short or short != text
        return short

    def _summary(self) -> str:
        packages = self.resolution.packages
        noun = "file" if all("/" in package.name for package in packages) else "package"
        found: list[str] = []
        for verdict, (_, _, plural) in _SIGNS.items():
            if count := [package.verdict for package in packages].count(verdict):
                words = verdict if count == 1 else plural
                found.append(f"{count if found else counted(count, noun)} {words}")
        return "; ".join(found) or "no package has a compiled file"

    def _package(self, package: PackageLoading) -> str:
        sign, colour, _ = _SIGNS[package.verdict]
        heading = f"{sign} {self._short(_title(package))} {package.verdict}"
        for other in self.resolution.packages:
            first = next((f for f in package.faults[:1] if f.package == other.name != package.name), None)
            if first and is_of(first, other):
                cause = "does not" if other.verdict is Verdict.FAILS else f"lacks {first.name}"
                return self.page.styled(f"{heading}: {other.name} {cause}", f"bold {colour}") + "\n"
        if package.after:
            heading += f", but only after `import {', '.join(package.after)}`"
        faults = [*(package.faults or package.fallbacks)]
        faults += [*package.fallbacks, *package.parts] if self.page.details else []
        by_message: dict[str, Fault] = {}
        for fault in faults:  # several files may lack the same
            by_message.setdefault(fault.message, fault)
        faults = [*by_message.values()]
        shown = faults if self.page.details else faults[:1]
        lines = [row for fault in shown for row in self._rows(fault)]
        if more := list(dict.fromkeys(fault.name for fault in faults[len(shown) :])):
            names = more if len(more) < 4 else [*more[:3], f"{len(more) - 3} more"]
            lines.append(("also", joined(names)))
        lines += [("", self._short(note)) for note in package.notes]
        if package.parts and not self.page.details:
            parts = counted(len(package.parts), "part")
            lines.append(("", f"{parts} that its import leaves out: --all lists them"))
        return self._printed([Passage(heading, tuple(lines))], shown, f"bold {colour}")

    def _rows(self, fault: Fault) -> Iterator[tuple[str, str]]:
        yield "", self._short(log_line(fault.message))
        if name := _demangled(fault.name):
            yield "C++ ", name
        if len(fault.path) > 1:
            yield "path", self._short(" → ".join(fault.path))
        if fault.others and fault.code == "not-opened-later":
            yield "also", joined(list(fault.others))
        elif fault.others:
            yield "", f"and {counted(len(fault.others), 'other symbol')}"
        yield from self._advice(fault)

    def _advice(self, fault: Fault) -> Iterator[tuple[str, str]]:
        for word, text in (("why ", fault.cause), ("do  ", fault.hint)):
            if text:
                yield word, self._short(text)

    def _printed(self, passages: list[Passage], faults: Iterable[Fault], style: str = "bold") -> str:
        """Return passages, and the commands of faults, which are not broken, so that they can be copied."""
        commands = dict.fromkeys(fault.command for fault in faults if fault.command)
        text = printed(passages, self.page, style)
        return text + "".join(f"  type  {command}\n" for command in commands)

    def _step(self, need: Need) -> str:
        return f"{need.step} {self._short(need.via)}".strip()

    def _tree(self, package: PackageLoading) -> str:
        """Return each file once, below the first that needs it, with the step that finds it."""
        sign, colour, _ = _SIGNS[package.verdict]
        lines = [self.page.styled(f"{sign} {_title(package)} {package.verdict}", f"bold {colour}")]
        files = {file.path: file for file in package.files}
        needed = {need.path for file in package.files for need in file.needs}
        roots = [path for path in files if path not in needed] or [*files][:1]
        stack = [(1, Need(path, path)) for path in reversed(roots)]
        done: set[str] = set()
        while stack:
            depth, need = stack.pop()
            if need.path in done:
                continue
            done.add(need.path or need.name)
            step = self.page.styled(f"  {self._step(need)}", "dim") if need.step else ""
            path = self._short(need.path) or self.page.styled(f"{need.name} not found", "red")
            lines.append(f"{'  ' * depth}{path}{step}")
            below = files.get(need.path, LoadedFile("")).needs
            stack += [(depth + 1, need) for need in reversed(below)]
        return "\n".join([*lines, ""])

    def _lookup(self, found: Lookup) -> str:
        is_library = found.kind == "library"
        rows = []
        for path, need in found.needs.items():
            step = plain.joined(self._short(need.path), self._step(need)) or "not found"
            version = f" · version {need.step}" if need.step else ""
            rows.append(("", self._short(path) + (f": {step}" if is_library else version)))
        loaded = {file.path for package in self.resolution.packages for file in package.files}
        # What is of no package is what the interpreter or a package has mapped.
        definers = [
            ("", plain.joined(self._short(path), owner, "not loaded" if owner and path not in loaded else ""))
            for path, owner in found.definers.items()
        ]
        nobody = [("", f"no file of these packages needs the {found.kind}")]
        verb, nothing = "has" if is_library else "defines", [("", "no installed package")]
        passages = [Passage(f"Who needs {found.name}", tuple(rows or nobody))]
        passages.append(Passage(f"What {verb} it", tuple(definers or nothing)))
        faults = (f for p in self.resolution.packages for f in (*p.faults, *p.fallbacks, *p.parts))
        about = [fault for fault in faults if found.name in (fault.name, *fault.others)][:1]
        if advice := [row for fault in about for row in self._advice(fault)]:
            passages.append(Passage("What to do", tuple(advice)))
        return self._printed(passages, about)


@cache
def _demangled(name: str) -> str:
    """Return the C++ name of a symbol, by c++filt; "" where that is not installed, and for another name."""
    is_cpp = name.startswith("_Z") and len(name) < _LONGEST
    program = which("c++filt", os.environ.get("PATH", os.defpath)) if is_cpp else ""
    found = outcome_of((program, name), _DEMANGLING, os.environ) if program else None
    text = found.output.strip() if found and not found.status else name
    return log_line(text) if text != name else ""
