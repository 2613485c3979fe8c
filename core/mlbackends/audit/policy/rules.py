"""The rules of policy files: every key of their tables is read, and nothing is guessed."""

import datetime as dt
import graphlib
import os
from typing import Any

from msgspec import Struct

from mlbackends.audit import hazard
from mlbackends.audit.policy import expectation, reader
from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.reader import Document, Path, PolicyError, check_keys
from mlbackends.audit.reports import read_report
from mlbackends.model import policy as language
from mlbackends.model.audit import Place, Severity
from mlbackends.model.errors import BadInput, shown, suggestion
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Report

MOST_FILES = 50
"""So many files one policy may be made of."""
_ID = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ASSERTIONS = language.ASSERTIONS
_COPIED = ("message", "why", "hint", "command", "documentation")
_NOT_OTHERWISE = ("names", "except")
_NOT_WITH = {
    "check": ("fact", "quantifier", *_NOT_OTHERWISE),
    "equals_snapshot": ("fact", "quantifier", "missing"),
}
"""Keys that mean nothing beside an assertion."""


class Golden(Struct, frozen=True):
    """A kept report, and which of its values count. names, but: dotted names, * for any text."""

    file: str
    report: Report
    names: tuple[str, ...]
    but: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is expected, on one line."""
        return f"{', '.join(self.names)}: as in {self.file}"


class Rule(Struct, frozen=True):
    """One rule. when: conditions of the rule and of its file, all of which must hold.

    missing: what it means if the value is not there. needs: ids of rules that must have passed.
    """

    id: str
    place: Place
    expectation: Expectation | Golden
    severity: Severity = Severity.ERROR
    missing: str = "fail"
    when: tuple[Expectation, ...] = ()
    needs: tuple[str, ...] = ()
    message: str = ""
    why: str = ""
    hint: str = ""
    command: str = ""
    documentation: str = ""


class Waiver(Struct, frozen=True):
    """A failure that is accepted until the end of a day."""

    until: dt.date
    reason: str


class Hazards(Struct, frozen=True):
    """Which known hazards are looked for, and how bad each is. place: where that is written.

    fail_on: hazards of this severity or worse are errors and all others notes; None: each keeps its own.
    """

    place: Place
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: dict[str, Severity] = {}
    fail_on: Severity | None = None


class Policy(Struct, frozen=True):
    """A whole policy. rules: in the order of the files. order: their ids, each after those it needs."""

    file: str
    name: str
    rules: tuple[Rule, ...]
    order: tuple[str, ...]
    waivers: dict[str, Waiver]
    hazards: Hazards | None = None


def read(path: str) -> Policy:
    """Read a policy and all that it extends. Raises BadInput: FILE:LINE: KEY: what is wrong."""
    return declared(reader.read(path))


def declared(document: Document) -> Policy:
    """Return the policy that a document declares, with what it extends."""
    files = _Files()
    files.add(document, ())
    for name, (file, path) in files.waiver_keys.items():
        names = (*files.rules, *files.codes)
        if name not in names:
            near = suggestion(name, names)
            file.wrong((*path, "rule"), f"there is no rule named {shown(name)}{near}")
    name = document.tables.get("name", "") or os.path.basename(document.file)
    rules = tuple(files.rules.values())
    order = _order(files.rules, files.rule_keys)
    return Policy(document.file, name, rules, order, files.waivers, files.hazards)


class _Files:
    """A policy while its files are read, those that are extended before the one that extends."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.rule_keys: dict[str, tuple[Document, Path]] = {}
        self.waivers: dict[str, Waiver] = {}
        self.waiver_keys: dict[str, tuple[Document, Path]] = {}
        self.hazards: Hazards | None = None
        self.probes: tuple[str, ...] = ()  # those that may come from elsewhere
        self.codes = frozenset(hazard.codes())
        self.ids: dict[str, set[str]] = {}  # the ids that each file brings, by its real path

    def add(self, document: Document, above: tuple[str, ...]) -> None:
        """Read a file. above: the files that led here, by their real paths."""
        top = document.tables
        own = os.path.realpath(document.path)
        check_keys(document, (), top, "")
        if top["schema"] != language.VERSION:
            document.wrong(
                ("schema",),
                f"is {shown(top['schema'])}, and this version of backends reads {language.VERSION}",
            )
        inherited: set[str] = set()  # the ids that come from the files that this one extends
        for number, name in enumerate(top.get("extends", ())):
            path: Path = ("extends", number)
            try:
                file = reader.beside(document, name)
                real = os.path.realpath(file)
                if real in (*above, own):
                    document.wrong(path, f"{shown(name)} leads back to this file: a circle")
                if real not in self.ids:
                    if len(self.ids) >= MOST_FILES or len(above) >= MOST_FILES:
                        document.wrong(path, f"more than {MOST_FILES} files: no policy has so many")
                    self.add(reader.read(file, document.folder), (*above, own))
            except PolicyError:
                raise
            except BadInput as error:
                document.wrong(path, str(error))
            inherited |= self.ids[real]
        self.ids[own] = inherited | {
            table["id"] for table in top.get("rule", ()) if isinstance(table.get("id"), str)
        }
        added = top.get("added_probes", ())
        for number, name in enumerate(added):
            if not name.isidentifier():
                document.wrong(("added_probes", number), f"{shown(name)} is no name of a probe")
        self.probes = tuple(sorted({*self.probes, *added}))
        when = self._when(document, (), top)
        for number, table in enumerate(top.get("rule", ())):
            self._add_rule(document, ("rule", number), table, when, inherited)
        for number, table in enumerate(top.get("waive", ())):
            self._add_waiver(document, ("waive", number), table)
        if "hazards" in top:
            self.hazards = _hazards(document, top["hazards"])

    def _when(
        self, document: Document, path: Path, table: dict[str, Any]
    ) -> tuple[Expectation, ...]:
        path = (*path, "when")
        texts = table.get("when", ())
        if isinstance(texts, str):
            return (self._short(document, path, texts),)
        return tuple(
            self._short(document, (*path, number), text) for number, text in enumerate(texts)
        )

    def _short(self, document: Document, path: Path, text: str) -> Expectation:
        try:
            return expectation.read(text, self.probes)
        except ValueError as error:
            document.wrong(path, str(error))

    def _add_rule(
        self,
        document: Document,
        path: Path,
        table: dict[str, Any],
        when: tuple[Expectation, ...],
        inherited: set[str],
    ) -> None:
        check_keys(document, path, table, "rule")
        name = table["id"]
        wrong = ""
        if not _ID.fullmatch(name):
            wrong = f"{shown(name)} is no id: letters, digits, '.', '_' and '-', at most 100"
        elif name in self.rules and name not in inherited:
            place = self.rules[name].place
            wrong = f"{name!r} is the id of {place.file}:{place.line} too"
        elif name in self.codes:
            wrong = f"{name!r} is the code of a known hazard: choose another id"
        if wrong:
            document.wrong((*path, "id"), wrong)
        inherited.discard(name)
        self.rule_keys[name] = document, path
        self.rules[name] = Rule(
            id=name,
            place=document.place((*path, "id")),
            expectation=self._expectation(document, path, table),
            severity=Severity(table.get("severity", Severity.ERROR)),
            missing=table.get("missing", "fail"),
            when=when + self._when(document, path, table),
            needs=tuple(dict.fromkeys(_texts(table, "needs"))),
            **{key: table.get(key, "") for key in _COPIED},
        )

    def _expectation(
        self, document: Document, path: Path, table: dict[str, Any]
    ) -> Expectation | Golden:
        asserted = [key for key in ("check", *_ASSERTIONS) if key in table]
        if not asserted:
            document.wrong(path, f"has neither check nor one of {', '.join(_ASSERTIONS)}")
        key = asserted[0]
        if len(asserted) > 1:
            document.wrong(
                (*path, asserted[1]), f"a rule asserts one thing, and {key} is in this one already"
            )
        for other in _NOT_WITH.get(key, _NOT_OTHERWISE):
            if other in table:
                document.wrong((*path, other), f"does not go with {key}")
        at = key
        try:
            if key == "check":
                return expectation.read(table[key], self.probes)
            if key == "equals_snapshot":
                report = read_report(reader.regular(reader.beside(document, table[key])))
                names = _texts(table, "names") or ("*",)
                return Golden(table[key], report, names, _texts(table, "except"))
            if "fact" not in table:
                raise ValueError("needs a fact that it is about")  # noqa: TRY301  with its line
            at = "fact"
            selection = expectation.name(table["fact"], self.probes)
            at = key
            return expectation.expected(selection, key, table[key], table.get("quantifier", "each"))
        except ValueError as error:
            document.wrong((*path, at), str(error))

    def _add_waiver(self, document: Document, path: Path, table: dict[str, Any]) -> None:
        check_keys(document, path, table, "waive")
        name = table["rule"]
        if name in self.waivers:
            file, other = self.waiver_keys[name]
            place = file.place(other)
            document.wrong((*path, "rule"), f"{name!r} is waived at {place.file}:{place.line} too")
        if not table["reason"].strip():
            document.wrong((*path, "reason"), "must not be empty")
        self.waivers[name] = Waiver(table["until"], table["reason"])
        self.waiver_keys[name] = document, path


def _order(rules: dict[str, Rule], keys: dict[str, tuple[Document, Path]]) -> tuple[str, ...]:
    """Return the ids, each after those that it needs. keys: where each rule stands."""

    def wrong(name: str, message: str) -> None:
        document, path = keys[name]
        document.wrong((*path, "needs"), message)

    for name, rule in rules.items():
        for other in rule.needs:
            if other not in rules:
                near = suggestion(other, tuple(rules))
                wrong(name, f"there is no rule named {shown(other)}{near}")
    first: tuple[str, ...] = ()
    try:
        needs = {name: rule.needs for name, rule in rules.items() if rule.needs}
        first = tuple(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        more = "..." if len(circle) > 5 else ""
        wrong(circle[0], f"{' needs '.join(circle[:5])}{more}: a circle")
    return tuple(dict.fromkeys((*first, *rules)))


def _hazards(document: Document, table: Any) -> Hazards | None:
    path: Path = ("hazards",)
    if isinstance(table, bool):
        return Hazards(document.place(path)) if table else None
    check_keys(document, path, table, "hazards")
    codes = hazard.codes()
    for key in ("only", "ignore", "severity"):
        for number, code in enumerate(table.get(key, ())):
            if code not in codes:
                near = suggestion(code, codes)
                last = code if key == "severity" else number
                document.wrong((*path, key, last), f"there is no hazard named {shown(code)}{near}")
    if not table.get("enable", True):
        return None
    return Hazards(
        document.place(path),
        tuple(table.get("only", ())),
        tuple(table.get("ignore", ())),
        {code: Severity(word) for code, word in table.get("severity", {}).items()},
        Severity(table["fail_on"]) if "fail_on" in table else None,
    )


def _texts(table: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the texts under a key that takes one or several."""
    texts = table.get(key, ())
    return (texts,) if isinstance(texts, str) else tuple(texts)
