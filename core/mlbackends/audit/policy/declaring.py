"""From the tables of policy files to rules: every key is looked at, and nothing is guessed."""

import graphlib
import os
from typing import Any

from mlbackends.audit import hazard
from mlbackends.audit.policy import reading, short
from mlbackends.audit.policy.checking import check_keys
from mlbackends.audit.policy.document import Document, PolicyError
from mlbackends.audit.policy.lines import Path
from mlbackends.audit.policy.rules import Hazards, Policy, Rule, Waiver
from mlbackends.audit.policy.short import Expectation
from mlbackends.audit.policy.snapshot import Golden
from mlbackends.model import policy as language
from mlbackends.model.audit import Severity
from mlbackends.model.errors import BadInput, shown, suggestion
from mlbackends.model.patterns import pattern

_ID = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ASSERTIONS = tuple(key.name for key in language.ASSERTIONS)
_PASSED_ON = ("message", "why", "hint", "command", "documentation")
_NOT_OTHERWISE = ("names", "except")
_NOT_WITH = {
    "check": ("fact", "quantifier", *_NOT_OTHERWISE),
    "equals_snapshot": ("fact", "quantifier", "missing"),
}
"""Keys that mean nothing beside an assertion."""
MOST_FILES = 50
"""So many files one policy may be made of."""


def read(path: str) -> Policy:
    """Read a policy and all that it extends. Raises BadInput: FILE:LINE: KEY: what is wrong."""
    document = reading.read(path)
    return declared(document)


def declared(document: Document) -> Policy:
    """Return the policy that a document declares, with what it extends."""
    draft = _Draft()
    draft.add(document, ())
    return draft.policy(document)


class _Draft:
    """A policy while its files are read, those that are extended before the one that extends."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.documents: dict[str, Document] = {}  # of each rule, the file that it is in
        self.paths: dict[str, Path] = {}
        self.waivers: dict[str, Waiver] = {}
        self.waived: list[tuple[Document, Path]] = []
        self.hazards: Hazards | None = None
        self.added: set[str] = set()
        self.probes: tuple[str, ...] = ()  # the same, in an order
        self.codes = frozenset(hazard.codes())
        self.ids: dict[str, set[str]] = {}  # of each file, by its real path, those it brings

    def add(self, document: Document, above: tuple[str, ...]) -> None:
        """Take a file in. above: the files that led here, by their real paths."""
        top = document.tables
        check_keys(document, (), top, "")
        if top["schema"] != language.VERSION:
            said = (
                f"is {shown(top['schema'])}, and this version of backends reads {language.VERSION}"
            )
            document.wrong(("schema",), said)
        inherited = self._extended(document, above)
        self.ids[os.path.realpath(document.path)] = inherited | {
            table["id"] for table in top.get("rule", ()) if isinstance(table.get("id"), str)
        }
        for number, name in enumerate(top.get("added_probes", ())):
            if not name.isidentifier():
                document.wrong(("added_probes", number), f"{shown(name)} is no name of a probe")
            self.added.add(name)
        self.probes = tuple(sorted(self.added))
        when = self._when(document, ("when",), top.get("when", ()))
        for number, table in enumerate(top.get("rule", ())):
            self._add_rule(document, ("rule", number), table, when, inherited)
        for number, table in enumerate(top.get("waive", ())):
            self._add_waiver(document, ("waive", number), table)
        if "hazards" in top:
            self.hazards = _hazards(document, top["hazards"])

    def _extended(self, document: Document, above: tuple[str, ...]) -> set[str]:
        """Take in the files that this one extends; return the ids that come from them."""
        own = os.path.realpath(document.path)
        ids: set[str] = set()
        for number, name in enumerate(document.tables.get("extends", ())):
            path: Path = ("extends", number)
            try:
                file = reading.beside(document, name)
            except ValueError as error:
                document.wrong(path, f"{shown(name)} {error}")
            real = os.path.realpath(file)
            if real in (*above, own):
                document.wrong(path, f"{shown(name)} leads back to this file: a circle")
            if real not in self.ids:
                if len(self.ids) >= MOST_FILES or len(above) >= MOST_FILES:
                    document.wrong(path, f"more than {MOST_FILES} files: no policy has so many")
                self.add(_base(document, path, file), (*above, own))
            ids |= self.ids[real]
        return ids

    def _when(self, document: Document, path: Path, texts: Any) -> tuple[Expectation, ...]:
        if isinstance(texts, str):
            return (self._short(document, path, texts),)
        return tuple(
            self._short(document, (*path, number), text) for number, text in enumerate(texts)
        )

    def _short(self, document: Document, path: Path, text: str) -> Expectation:
        try:
            return short.read(text, self.probes)
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
        if not _ID.fullmatch(name):
            said = f"{shown(name)} is no id: letters, digits, '.', '_' and '-', at most 100"
            document.wrong((*path, "id"), said)
        if name in self.rules and name not in inherited:
            place = self.rules[name].place
            document.wrong((*path, "id"), f"{name!r} is the id of {place.file}:{place.line} too")
        if name in self.codes:
            document.wrong(
                (*path, "id"), f"{name!r} is the code of a known hazard: choose another id"
            )
        inherited.discard(name)
        self.documents[name], self.paths[name] = document, path
        self.rules[name] = Rule(
            id=name,
            place=document.place((*path, "id")),
            expectation=self._expectation(document, path, table),
            severity=Severity(table.get("severity", Severity.ERROR)),
            missing=table.get("missing", "fail"),
            when=when + self._when(document, (*path, "when"), table.get("when", ())),
            needs=tuple(dict.fromkeys(_listed(table.get("needs", ())))),
            **{key: table.get(key, "") for key in _PASSED_ON},
        )

    def _expectation(
        self, document: Document, path: Path, table: dict[str, Any]
    ) -> Expectation | Golden:
        asserted = [key for key in ("check", *_ASSERTIONS) if key in table]
        if not asserted:
            said = f"has neither check nor one of {', '.join(_ASSERTIONS)}"
            document.wrong(path, said)
        if len(asserted) > 1:
            said = f"a rule asserts one thing, and {asserted[0]} is in this one already"
            document.wrong((*path, asserted[1]), said)
        key = asserted[0]
        for other in _NOT_WITH.get(key, _NOT_OTHERWISE):
            if other in table:
                document.wrong((*path, other), f"does not go with {key}")
        if key == "check":
            return self._short(document, (*path, key), table[key])
        if key == "equals_snapshot":
            return _golden(document, path, table)
        if "fact" not in table:
            document.wrong((*path, key), "needs a fact that it is said of")
        try:
            selection = short.name(table["fact"], self.probes)
        except ValueError as error:
            document.wrong((*path, "fact"), str(error))
        try:
            return short.expected(selection, key, table[key], table.get("quantifier", "each"))
        except ValueError as error:
            document.wrong((*path, key), str(error))

    def _add_waiver(self, document: Document, path: Path, table: dict[str, Any]) -> None:
        check_keys(document, path, table, "waive")
        name = table["rule"]
        if name in self.waivers:
            place = self.waivers[name].place
            document.wrong((*path, "rule"), f"{name!r} is waived at {place.file}:{place.line} too")
        if not table["reason"].strip():
            document.wrong((*path, "reason"), "must not be empty")
        self.waivers[name] = Waiver(name, table["until"], table["reason"], document.place(path))
        self.waived.append((document, (*path, "rule")))

    def policy(self, document: Document) -> Policy:
        """Return the whole, its rules in the order in which they can be held to a report."""
        known = (*self.rules, *hazard.codes())
        for name, (file, path) in zip(self.waivers, self.waived, strict=True):
            if name not in known:
                file.wrong(path, f"there is no rule named {shown(name)}{suggestion(name, known)}")
        name = document.tables.get("name", "") or os.path.basename(document.file)
        rules = tuple(self.rules.values())
        return Policy(document.file, name, rules, self._order(), self.waivers, self.hazards)

    def _order(self) -> tuple[str, ...]:
        """Return the ids, each after those that it needs."""
        for name, rule in self.rules.items():
            for other in rule.needs:
                if other not in self.rules:
                    near = suggestion(other, tuple(self.rules))
                    said = f"there is no rule named {shown(other)}{near}"
                    self.documents[name].wrong((*self.paths[name], "needs"), said)
        needing = {name: rule.needs for name, rule in self.rules.items() if rule.needs}
        try:
            first = tuple(graphlib.TopologicalSorter(needing).static_order())
        except graphlib.CycleError as error:
            circle = error.args[1]
            said = f"{' needs '.join(circle[:5])}{'...' if len(circle) > 5 else ''}: a circle"
            self.documents[circle[0]].wrong((*self.paths[circle[0]], "needs"), said)
        return tuple(dict.fromkeys((*first, *self.rules)))


def _base(document: Document, path: Path, file: str) -> Document:
    """Read a file that another extends; one that cannot be read is an error in that other one."""
    try:
        return reading.read(file, document.folder)
    except PolicyError:
        raise
    except BadInput as error:
        document.wrong(path, str(error))


def _golden(document: Document, path: Path, table: dict[str, Any]) -> Golden:
    from mlbackends.audit.reports import read_report

    name = table["equals_snapshot"]
    try:
        report = read_report(reading.regular(reading.beside(document, name)))
    except ValueError as error:
        said = str(error) if isinstance(error, BadInput) else f"{shown(name)} {error}"
        document.wrong((*path, "equals_snapshot"), said)
    names = tuple(_listed(table.get("names", ["*"])))
    return Golden(name, report, names, tuple(_listed(table.get("except", ()))))


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
                said = f"there is no hazard named {shown(code)}{near}"
                document.wrong((*path, key, code if key == "severity" else number), said)
    if not table.get("enable", True):
        return None
    return Hazards(
        document.place(path),
        tuple(table.get("only", ())),
        tuple(table.get("ignore", ())),
        {code: Severity(word) for code, word in table.get("severity", {}).items()},
        Severity(table["fail_on"]) if "fail_on" in table else None,
    )


def _listed(texts: Any) -> Any:
    return [texts] if isinstance(texts, str) else texts
