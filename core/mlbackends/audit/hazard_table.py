"""The rows of hazards/table/*.toml, which have the texts of hazards, and how a row is evaluated.

A row is a table named by the hazard's code. `Row` has its fields, and `Rule` those that find its symptoms,
unless a function in hazards/ does. A row finds one kind of symptom, or several, each in its own
`[[CODE.symptoms]]`:

    warnings = ["cpu:degraded"]    each warning of that probe with that code
    reasons = ["xpu:no-driver"]    the first reason of that probe or its devices with that code
    [CODE.variables]               each environment variable that has one of these values
    each = "nvidia.devices[...]"   each such device, with `message`
    faults = ["missing-library"]   each package that does not load for that (loading.faults)
    message                        otherwise one, where the conditions hold

Conditions are those of policies, `cpu.boost == false`, or several joined by `or`. A value that is not in the
report meets only `absent`, and its count is 0. In conditions and texts {cpu.model_name} is a value of the
report. In texts {name|text} has a default, {name/1e9:.1f} a divisor and a format, and [brackets] are left out
if the report lacks a value in them. With warnings, reasons and variables a message is optional: {seen} is the
warning or NAME=VALUE, {gpu} the device that has it, {variable} the first word of the warning.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.audit.environment import FRAMEWORKS, install, integer, is_on, setting, settings
from mlbackends.audit.gpus import called, described_gpus, nvidia_gpus
from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Symptom, Symptoms
from mlbackends.audit.imports import is_named
from mlbackends.audit.policy import expectation, selection
from mlbackends.audit.policy.selection import Values
from mlbackends.base.comparison import fits
from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.python.installing import quoted
from mlbackends.model.audit import Problem, Severity
from mlbackends.model.loading import Verdict
from mlbackends.model.records import FactValue, Presence, ProbeReport

SUBJECTS = ("devices", "machine", "packages", "variables")
_VALUE = pattern(r"\{([\w.]+(?:\[[^\[\]{}]*\][\w.]+)?)(?:/([\d.e]+))?(?:\|([^}:]*))?(?::([^}]*))?\}")
_OPTIONAL = pattern(r"\[([^\[\]{}]*\{[^\[\]]*)\]")


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """An environment variable. effect: continues the sentence "NAME=VALUE: " if the rule has no message.

    value: the values that have the effect: a regular expression; "any"; "on" for what most programs take for
    yes; "number" for numbers as C reads them, not 0 or with another condition, such as "number >= 2".
    """

    value: str
    effect: str = ""
    severity: Severity | None = None

    def has_effect(self, value: str) -> bool:
        """Return whether a value has the effect."""
        kind, _, condition = self.value.partition(" ")
        if kind == "number":
            sign, _, operand = (condition or "!= 0").partition(" ")
            return fits(integer(value), sign, operand)
        if kind in ("on", "any"):
            return kind == "any" or is_on(value)
        return re.fullmatch(self.value, value) is not None


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What finds symptoms, and their texts.

    where: all of these conditions must hold; unless: not all of these. begins, begins_not: the first words of
    warnings. commands: by condition, in place of command; the first one that holds decides. install:
    requirements for the command. evidence: names of values. note_if, warning_if, error_if: the severity is
    another where all of these hold. severities: by probe.
    """

    where: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    begins: tuple[str, ...] = ("",)
    begins_not: tuple[str, ...] = ()
    variables: dict[str, Variable] = {}
    each: str = ""
    message: str = ""
    hint: str = ""
    command: str = ""
    commands: dict[str, str] = {}
    install: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    level: Severity | None = None
    note_if: tuple[str, ...] = ()
    warning_if: tuple[str, ...] = ()
    error_if: tuple[str, ...] = ()
    severities: dict[str, Severity] = {}


class Row(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hazard: the fields of a file, in small letters, and what limits where it applies.

    platforms: by Python's names. gpus: "nvidia" if it needs NVIDIA GPUs, "described" if NVML must have
    described them. requires: conditions without which it is impossible, and what to report then. needs: facts
    without which it is unknown. claims: warnings that it reports in its own words; "frameworks:" stands for
    every probe of a framework.
    """

    title: str
    severity: Severity
    problem: Problem
    reads: tuple[str, ...]
    why: str
    fix: str
    found_by: str
    sources: tuple[str, ...]
    no_alarm: str = ""
    severity_note: str = ""
    in_container: Problem | None = None
    platforms: tuple[str, ...] = ()
    gpus: str = ""
    requires: dict[str, str] = {}
    needs: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    symptoms: tuple[Rule, ...] = ()

    @property
    def claimed(self) -> tuple[tuple[str, str], ...]:
        """The warnings of probes that the hazard reports, as (probe, code)."""
        rules = (self, *self.symptoms)
        return tuple(
            dict.fromkeys(_pairs([*self.claims, *(warning for rule in rules for warning in rule.warnings)]))
        )


def _pairs(warnings: Iterable[str]) -> Iterator[tuple[str, str]]:
    for warning in warnings:
        probe, _, code = warning.partition(":")
        yield from ((name, code) for name in (FRAMEWORKS if probe == "frameworks" else (probe,)))


@cache
def rows() -> dict[str, Row]:
    """Return the rows of all tables, by code."""
    files = (table(f"audit/hazards/table/{subject}.toml") for subject in SUBJECTS)
    return {code: msgspec.convert(row, Row) for file in files for code, row in file.items()}


def symptoms(row: Row, report: ReportView) -> Symptoms:
    """Yield the symptoms of a row. Raises DoesNotApply and NotReported."""
    if row.platforms:
        report.only_on(*row.platforms)
    if row.gpus:
        (described_gpus if row.gpus == "described" else nvidia_gpus)(report)
    values = Values(report.record)
    for condition, otherwise in row.requires.items():
        if not holds(values, condition):
            raise DoesNotApply(otherwise)
    for rule in row.symptoms or (row,):
        for condition in rule.where:
            if not holds(values, condition):
                name = condition.split()[0]
                if name in row.needs and not _found(values, name):
                    raise NotReported(f"{name} is not in the report")
                break
        else:
            if not rule.unless or not all(holds(values, exception) for exception in rule.unless):
                yield from _of_rule(rule, report, values)


def _of_rule(rule: Rule, report: ReportView, values: Values) -> Symptoms:
    severity = rule.level
    levels = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
    for level, conditions in zip(levels, (rule.note_if, rule.warning_if, rule.error_if), strict=True):
        if conditions and all(holds(values, condition) for condition in conditions):
            severity = level
    text = partial(filled, values)
    commands = (text for condition, text in rule.commands.items() if holds(values, condition))
    command_template = next(commands, rule.command)
    for probe, field, reason in _reasons(rule, report):
        variable_name = re.split(r"\W", reason.message, maxsplit=1)[0]
        own: dict[str, Any] = {"seen": reason.message, "variable": variable_name}
        for device in report.devices(probe):
            if reason in device.reasons:
                own["gpu"] = called(device)
                field = f"devices.{device.index}.reasons"
        hint = text(rule.hint) or reason.hint
        command = text(command_template, own, is_command=True)
        yield Symptom(
            text(rule.message, own) or reason.message,
            hint if hint != command else "",
            command,
            _evidence(values, rule, probe=probe, variable=variable_name)
            or {f"{probe}.{field}.code": [reason.code]},
            rule.severities.get(probe, severity),
        )
    yield from _faults(rule, report)
    for name, value in settings(report).items() if rule.variables else ():
        variable = rule.variables.get(name)
        if variable and variable.has_effect(value):
            seen = setting(name, value)
            yield Symptom(
                text(rule.message, {"seen": seen}) or f"{seen}: {variable.effect}",
                command=text(command_template, is_command=True) or f"unset {name}",
                evidence={f"environment.variables.{name}": value, **_evidence(values, rule)},
                severity=variable.severity or severity,
            )
    if rule.each:
        probe = rule.each.partition(".")[0]
        for label in _found(values, rule.each):
            gpu = report.devices(probe)[int(label.rpartition(".")[2])]
            own = {"gpu": called(gpu), "index": gpu.index}
            facts = gpu.facts | gpu.volatile
            yield Symptom(
                text(rule.message, own),
                text(rule.hint, own),
                text(command_template, own, is_command=True),
                {f"{probe}.devices.{gpu.index}.{name}": facts[name] for name in rule.evidence},
                severity,
            )
    elif rule.message and not (rule.warnings or rule.reasons or rule.variables or rule.faults):
        command = install(report, *rule.install) if rule.install else ""
        yield Symptom(
            text(rule.message),
            text(rule.hint),
            text(command_template, is_command=True) or command,
            _evidence(values, rule),
            severity,
        )


def _faults(rule: Rule, report: ReportView) -> Iterator[Symptom]:
    """Yield the faults of packages, but those that an import met, or that missing files explain."""
    incomplete = {row["name"] for row in report.fact("packages.missing_files", [])}
    for row in report.fact("loading.faults", []) if rule.faults else ():
        package, name = row["package"], row.get("name", "")
        words = f"{package} {row.get('version', '')} {row['verdict']}: {row['message']}"
        is_glibc = name.startswith("GLIBC_") and package in report.fact("packages.glibc_needed", {})
        is_known = package in incomplete or is_glibc or (name and is_named(report, name))
        if row["code"] in rule.faults and not is_known and not words.startswith(rule.begins_not):
            cause = f" ({row['cause'].rstrip('.')})" if "cause" in row else ""
            yield Symptom(
                f"{words}{cause}",
                row.get("hint", ""),
                row.get("command", ""),
                {"loading.faults": [row]},
                Severity.WARNING if row["verdict"] == Verdict.FALLS_BACK else None,
            )


def _reasons(rule: Rule, report: ReportView) -> Iterator[tuple[str, str, Reason]]:
    """Yield the warnings and reasons that a rule names, as (probe, field, reason)."""
    for probe, code in _pairs(rule.warnings):
        for warning in report.warnings(probe, code):
            begins = warning.message.startswith
            if begins(rule.begins) and not begins(rule.begins_not):
                yield probe, "warnings", warning
    for probe, code in _pairs(rule.reasons):
        found = report.probe(probe) or ProbeReport(None)
        for reason in chain(found.reasons, *(device.reasons for device in found.devices)):
            if reason.code == code:
                yield probe, "reasons", reason
                break


def _evidence(values: Values, rule: Rule, **own: str) -> dict[str, FactValue]:
    names = (name.format(**own) for name in rule.evidence)
    return {
        label.replace(".facts.", "."): value
        for name in names
        for label, value in _found(values, name).items()
    }


_expectation = cache(expectation.read)


def _found(values: Values, name: str) -> dict[str, Any]:
    """Return the values of a dotted name, by their full names; {} if the report lacks them."""
    return values.found(selection.read(name), "version").values


def holds(values: Values, condition: str) -> bool:
    """Return whether one of the conditions joined by `or` holds.

    A value that is missing or of another type fulfils none.
    """
    return any(_is_met(values, part) for part in condition.split(" or "))


def _is_met(values: Values, condition: str) -> bool:
    if "{" in condition and not (condition := filled(values, condition, is_command=True)):
        return False
    expected = _expectation(condition)
    found = values.found(expected.selection, expected.field)
    present = [value for value in found.values.values() if value != Presence.ABSENT]
    if expected.kind in ("present", "absent"):
        return bool(present) is (expected.kind == "present")
    if expected.kind == "count":
        counted = present if expected.selection.is_of_many else (present or [()])[0]
        return expected.assertion.holds(len(counted) if isinstance(counted, list | dict | tuple) else 0)
    results = []
    for value in present:
        try:
            results.append(expected.assertion.holds(value))
        except BadInput:  # it cannot be compared
            results.append(False)
    if expected.quantifier == "each":
        return bool(results) and all(results) and not found.absent
    return any(results) is (expected.quantifier == "any")


class _Missing(Exception):
    """A text names a value that the report lacks."""


def filled(
    values: Values, template: str, own: dict[str, Any] | None = None, *, is_command: bool = False
) -> str:
    """Return a text with the values of the report in it. own: values by names that are not of the report."""

    def value(match: re.Match[str]) -> str:
        name, divisor, default, form = match.groups()
        found = own.get(name) if own and name in own else next(iter(_found(values, name).values()), None)
        if found is None:
            if default is None:
                raise _Missing
            return default
        if divisor and isinstance(found, int | float):
            found = found / float(divisor)
        if isinstance(found, list):
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            return " ".join(map(quoted, map(str, found))) if is_command else f"{found[0]}{more}"
        text = format(found, form) if form and not isinstance(found, str) else str(found)
        return quoted(text) if is_command else text

    parts = _OPTIONAL.split(template)  # every second one is optional
    for at in range(1, len(parts), 2):
        try:
            parts[at] = _VALUE.sub(value, parts[at])
        except _Missing:
            parts[at] = ""
    try:
        parts[::2] = [_VALUE.sub(value, part) for part in parts[::2]]
    except _Missing:
        return "" if is_command else _VALUE.sub("unknown", template)
    return "".join(parts)


def sections(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the other texts of a row, as (word, text)."""
    for word, text in (
        ("found by", row.found_by),
        ("no alarm", row.no_alarm),
        ("severity", row.severity_note),
    ):
        if text:
            yield word, text
