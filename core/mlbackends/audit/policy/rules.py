"""The rules of policy files: every key of their tables is read, and nothing is guessed."""

import graphlib
import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.audit import catalogue
from mlbackends.audit.policy import expectation, language, reader
from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.reader import Document, PolicyError, Table, checked
from mlbackends.audit.reports import read_report
from mlbackends.audit.waivers import Waiver
from mlbackends.base.errors import BadInput, shown, suggestion
from mlbackends.base.patterns import pattern
from mlbackends.model.audit import Place, Problem, Severity
from mlbackends.model.records import Report

#: The most files that one policy may consist of.
MOST_FILES = 50
_ID = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_COPIED = ("missing", "message", "why", "hint", "command", "documentation")
_NOT_OTHERWISE = ("names", "except")
#: Keys that an assertion excludes.
_NOT_WITH = {
    "check": ("fact", "quantifier", *_NOT_OTHERWISE),
    "equals_snapshot": ("fact", "quantifier", "missing"),
}


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

    missing: the result if the value is missing. needs: ids of rules that must have passed.
    """

    id: str
    place: Place
    expectation: Expectation | Golden
    severity: Severity = Severity.ERROR
    problem: Problem = Problem.NODE
    missing: str = "fail"
    when: tuple[Expectation, ...] = ()
    needs: tuple[str, ...] = ()
    message: str = ""
    why: str = ""
    hint: str = ""
    command: str = ""
    documentation: str = ""


class Hazards(Struct, frozen=True):
    """Which known hazards are checked, and the severity of each. place: where that is declared.

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


def required(assertions: Sequence[str]) -> Policy:
    """Return the policy of assertions such as "cpu.capability >= AVX2", without a file.

    Raises BadInput with the assertion and what is wrong with it.
    """
    names = [re.sub("[^A-Za-z0-9.]+", "-", text).strip("-.")[:90] for text in assertions]
    table = [
        {
            "id": name if name and names.count(name) == 1 else f"{name}-{number}".strip("-"),
            "check": text,
        }
        for number, (name, text) in enumerate(zip(names, assertions, strict=True), 1)
    ]
    for rule in table:
        tables = {"schema": language.VERSION, "rule": [rule]}
        try:
            declared(Document("--require", "", tables, path="", folder=""))
        except PolicyError as error:
            why = str(error).partition("check: ")[2] or str(error)
            raise BadInput(f"--require {shown(rule['check'])}: {why}", error.hint) from None
    tables = {"schema": language.VERSION, "rule": table}
    policy = declared(Document("--require", "", tables, path="", folder=""))
    return msgspec.structs.replace(policy, name="requirements")


def declared(document: Document) -> Policy:
    """Return the policy that a document declares, with what it extends."""
    files = _Files()
    top = files.add(document, ())
    names = (*files.rules, *files.codes)
    for name, table in files.waivers.items():
        if name not in names:
            near = suggestion(name, names)
            table.wrong(f"there is no rule named {shown(name)}{near}", "rule")
    return Policy(
        file=document.file,
        name=top.values.get("name") or os.path.basename(document.file),
        rules=tuple(files.rules.values()),
        order=_order(files.rules, files.tables),
        waivers={
            name: Waiver(reason=table.values["reason"], until=table.values["until"])
            for name, table in files.waivers.items()
        },
        hazards=files.hazards,
    )


class _Files:
    """A policy while its files are read; extended files come before the one that extends them."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.tables: dict[str, Table] = {}  # those of the rules
        self.waivers: dict[str, Table] = {}
        self.hazards: Hazards | None = None
        self.probes: tuple[str, ...] = ()  # those that may come from elsewhere
        self.codes = frozenset(catalogue.codes())
        self.ids: dict[str, set[str]] = {}  # the ids that each file brings, by its real path

    def add(self, document: Document, above: tuple[str, ...]) -> Table:
        """Read a file. above: the files that led here, by their real paths."""
        own = os.path.realpath(document.path)
        top = checked(document, (), document.tables, "")
        if top.values["schema"] != language.VERSION:
            version = f"and this version of backends reads {language.VERSION}"
            top.wrong(f"is {shown(top.values['schema'])}, {version}", "schema")
        inherited = self._extended(top, (*above, own))
        self.ids[own] = inherited | {
            rule["id"] for rule in top.values.get("rule", ()) if isinstance(rule.get("id"), str)
        }
        added = top.texts("added_probes")
        for number, name in enumerate(added):
            if not name.isidentifier():
                top.wrong(f"{shown(name)} is not a name of a probe", "added_probes", number)
        self.probes = tuple(sorted({*self.probes, *added}))
        when = self._conditions(top)
        for table in top.tables("rule"):
            self._add_rule(table, when, inherited)
        for table in top.tables("waive"):
            name = table.values["rule"]
            if name in self.waivers:
                place = self.waivers[name].place()
                table.wrong(f"{name!r} is waived at {place.file}:{place.line} too", "rule")
            if not table.values["reason"].strip():
                table.wrong("must not be empty", "reason")
            self.waivers[name] = table
        if "hazards" in top.values:
            self.hazards = _hazards(document, top.values["hazards"])
        return top

    def _extended(self, top: Table, above: tuple[str, ...]) -> set[str]:
        """Read the files that a file extends; return the ids that come from them. above: it is the last."""
        ids: set[str] = set()
        for number, name in enumerate(top.texts("extends")):
            try:
                file = reader.beside(top.document, name)
                real = os.path.realpath(file)
                if real in above:
                    top.wrong(f"{shown(name)} leads back to this file: a circle", "extends", number)
                if real not in self.ids:
                    if max(len(self.ids), len(above) - 1) >= MOST_FILES:
                        many = f"more than {MOST_FILES} files: no policy needs more"
                        top.wrong(many, "extends", number)
                    self.add(reader.read(file, top.document.folder), above)
            except PolicyError:
                raise
            except BadInput as error:
                top.wrong(str(error), "extends", number)
            ids |= self.ids[real]
        return ids

    def _conditions(self, table: Table) -> tuple[Expectation, ...]:
        conditions = []
        for number, text in enumerate(table.texts("when")):
            try:
                conditions.append(expectation.read(text, self.probes))
            except ValueError as error:
                is_list = isinstance(table.values["when"], list)
                table.wrong(str(error), "when", *([number] if is_list else []))
        return tuple(conditions)

    def _add_rule(self, table: Table, when: tuple[Expectation, ...], inherited: set[str]) -> None:
        values = table.values
        name = values["id"]
        if not _ID.fullmatch(name):
            ids = "letters, digits, '.', '_' and '-', at most 100"
            table.wrong(f"{shown(name)} is not an id: {ids}", "id")
        if name in self.rules and name not in inherited:
            place = self.rules[name].place
            table.wrong(f"{name!r} is the id of {place.file}:{place.line} too", "id")
        if name in self.codes:
            table.wrong(f"{name!r} is the code of a known hazard: choose another id", "id")
        inherited.discard(name)
        self.tables[name] = table
        self.rules[name] = Rule(
            id=name,
            place=table.place("id"),
            expectation=self._expectation(table),
            severity=Severity(values.get("severity", Severity.ERROR)),
            problem=Problem(values.get("problem", Problem.NODE)),
            when=when + self._conditions(table),
            needs=tuple(dict.fromkeys(table.texts("needs"))),
            **{key: values[key] for key in _COPIED if key in values},
        )

    def _expectation(self, table: Table) -> Expectation | Golden:
        values = table.values
        asserted = [key for key in ("check", *language.ASSERTIONS) if key in values]
        if not asserted:
            table.wrong(f"has neither check nor one of {', '.join(language.ASSERTIONS)}")
        key = at = asserted[0]
        if len(asserted) > 1:
            table.wrong(f"a rule asserts one thing, and this one already has {key}", asserted[1])
        for other in _NOT_WITH.get(key, _NOT_OTHERWISE):
            if other in values:
                table.wrong(f"cannot be combined with {key}", other)
        if key not in ("check", "equals_snapshot") and "fact" not in values:
            table.wrong("needs a fact to check", key)
        try:
            if key == "check":
                return expectation.read(values[key], self.probes)
            if key == "equals_snapshot":
                report = read_report(reader.regular(reader.beside(table.document, values[key])))
                names = table.texts("names") or ("*",)
                return Golden(values[key], report, names, table.texts("except"))
            at = "fact"
            selection = expectation.name(values["fact"], self.probes)
            at = key
            return expectation.expected(selection, key, values[key], values.get("quantifier", "each"))
        except ValueError as error:
            table.wrong(str(error), at)


def _order(rules: dict[str, Rule], tables: dict[str, Table]) -> tuple[str, ...]:
    """Return the rules' ids, each after those that it needs. tables: those of the rules."""
    for name, rule in rules.items():
        for other in rule.needs:
            if other not in rules:
                near = suggestion(other, tuple(rules))
                tables[name].wrong(f"there is no rule named {shown(other)}{near}", "needs")
    first: tuple[str, ...] = ()
    try:
        needs = {name: rule.needs for name, rule in rules.items() if rule.needs}
        first = tuple(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        more = "..." if len(circle) > 5 else ""
        tables[circle[0]].wrong(f"{' needs '.join(circle[:5])}{more}: a circle", "needs")
    return tuple(dict.fromkeys((*first, *rules)))


def _hazards(document: Document, values: Any) -> Hazards | None:
    place = document.place(("hazards",))
    if isinstance(values, bool):
        return Hazards(place) if values else None
    table = checked(document, ("hazards",), values, "hazards")
    codes = catalogue.codes()
    for key in ("only", "ignore", "severity"):
        for number, code in enumerate(values.get(key, ())):
            if code not in codes:
                near = suggestion(code, codes)
                last = code if key == "severity" else number
                table.wrong(f"there is no hazard named {shown(code)}{near}", key, last)
    if not values.get("enable", True):
        return None
    found = {key: values[key] for key in Hazards.__struct_fields__ if key in values}
    return msgspec.convert({**found, "place": place}, Hazards)
