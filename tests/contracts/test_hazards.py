"""Hazards: each file offers what it has to, each warning of a probe has one that speaks for it.

The tests of hazards name machines that have one and machines that lack it, in tables MACHINES, HAS and LACKS.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.audit import catalogue
from mlbackends.audit.hazard import Symptoms
from mlbackends.audit.hazard_table import rows
from mlbackends.audit.policy import expectation
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import claimed, examine
from mlbackends.base import registry
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Check, Problem, Severity, Status
from mlbackends.survey import all_codes
from mlbackends.switches.deviations import DEVIATIONS
from mlbackends.switches.files import groups
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from mlbackends.model.records import Report

ROOT = Path(__file__).resolve().parents[1]
HOSTS = sorted(path.stem for path in (ROOT / "hosts").glob("*.machine"))
CODES = catalogue.codes()
PROBES = registry.names("mlbackends_probes")
#: The warnings of which several hazards take their part.
SHARED = {
    # Which limit it is decides: a quota, a mask, or the number of processes.
    ("limits", "limit-below-hardware"),
    # LD_PRELOAD has a page of its own.
    ("environment", "override-invalid"),
}
OTHERS = "other-warning"


@cache
def report(host: str) -> Report:
    return report_of(str(ROOT / "hosts" / f"{host}.machine"), redact=False)


@cache
def checks(host: str) -> tuple[Check, ...]:
    return examine(report(host)).checks


@cache
def tables() -> tuple[set[str], set[str]]:
    """Return the codes that tests of hazards name as present on a machine, and as absent from one."""
    has: set[str] = set()
    lacks: set[str] = set()
    for path in sorted((ROOT / "core" / "audit" / "hazards").glob("test_*.py")):
        specification = importlib.util.spec_from_file_location(path.stem, path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        has |= {_code(entry) for entry in getattr(module, "HAS", ())}
        lacks |= {_code(entry) for entry in getattr(module, "LACKS", ())}
        for code, (machine, other) in getattr(module, "MACHINES", {}).items():
            has |= {code} if machine else set()
            lacks |= {code} if other else set()
    return has, lacks


def _code(entry: str | tuple[str, ...]) -> str:
    """Return the code of an entry: a table's key, or what a list's row begins with."""
    return entry if isinstance(entry, str) else entry[0]


def claimants() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for code in CODES:
        for pair in catalogue.load(code).warnings:
            found.setdefault(pair, []).append(code)
    return found


# ---- what a file offers --------------------------------------------------------------------------


def test_a_hazard_has_what_its_interface_asks_for() -> None:
    for code in CODES:
        found = catalogue.load(code)

        # In a container only what was given to it can differ from the machine.
        assert found.in_container in (None, Problem.USER), code
        assert set(found.reads) <= set(PROBES), code
        assert found.sources and all(found.sources), code
        for text in (found.why, found.fix):
            assert text.endswith(".") and "  " not in text, code
        assert 10 < len(found.title) <= 100, code
        sections = dict(found.sections)
        assert sections.get("found by"), code
        assert set(sections) <= {"found by", "no alarm", "severity"}, code


def test_a_row_is_valid_and_only_one_without_a_function_has_rules() -> None:
    functions = {
        name.replace("_", "-")
        for module in catalogue.WITH_LOGIC
        for name, function in vars(module).items()
        if getattr(function, "__annotations__", {}).get("return") is Symptoms and name[0] != "_"
    }

    assert functions <= rows().keys()
    assert len(functions) > 40
    for code, row in rows().items():
        has_rules = bool(row.symptoms or row.message or row.warnings or row.variables or row.faults)
        assert has_rules is (code not in functions), code
        for rule in (row, *row.symptoms):
            for conditions in (*row.requires, *rule.where, *rule.unless):
                for condition in conditions.split(" or "):
                    # It raises for a value that no probe reports.
                    expectation.read(re.sub(r"\{[^}]*\}", "1", condition))


def test_what_only_looks_like_a_hazard_is_said_of_nearly_all() -> None:
    silent = [code for code in CODES if "no alarm" not in dict(catalogue.load(code).sections)]

    assert len(silent) <= len(CODES) // 4, silent


def test_a_code_is_words_with_hyphens_and_means_one_thing() -> None:
    others = {*all_codes(), *SWITCHES, *groups(), *(deviation.code for deviation in DEVIATIONS)}
    for code in CODES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code), code
        assert code not in others, f"`backends explain` would have two pages named {code}"
        assert code not in {"deviations", "hazards"}, code


# ---- warnings of probes --------------------------------------------------------------------------


def test_a_hazard_claims_only_what_a_probe_can_say() -> None:
    known = set(all_codes())

    strange = {
        pair: codes for pair, codes in claimants().items() if pair[0] not in PROBES or pair[1] not in known
    }

    assert strange == {}


def test_a_warning_has_one_hazard_that_speaks_for_it() -> None:
    several = {pair: codes for pair, codes in claimants().items() if len(codes) > 1}

    assert several.keys() <= SHARED, several
    assert claimed() == frozenset(claimants())


def test_a_warning_of_a_machine_is_told_by_its_hazard_or_as_it_is() -> None:
    owners = claimants()
    for host in HOSTS:
        failed = [check for check in checks(host) if check.status is Status.FAILED]
        untold = []
        for probe, found_report in report(host).probes.items():
            for warning in found_report.warnings:
                speakers = owners.get((probe, warning.code), [OTHERS])
                is_told = any(check.code in speakers for check in failed)
                # Two copies of GNU's OpenMP are a fact of the machine, about which nothing can be done.
                is_told = is_told or (
                    probe == "openmp" and "each copy has separate threads" in warning.message
                )
                if not is_told and not _told_with_another(warning.message, failed):
                    untold.append((probe, warning.code, warning.message))

        assert untold == [], host


def _told_with_another(message: str, failed: list[Check]) -> bool:
    """Two packages that are flavours of one and own one file are told once, with both names."""
    pair = re.match(r"(\S+) \S+ and (\S+) \S+ both installed", message)
    return pair is not None and any({pair[1], pair[2]} <= set(check.message.split()) for check in failed)


def test_nothing_is_said_twice_of_a_machine() -> None:
    for host in HOSTS:
        messages = [check.message for check in checks(host) if check.status is Status.FAILED]

        assert sorted(messages) == sorted(set(messages)), host


# ---- machines ------------------------------------------------------------------------------------


def test_a_check_of_a_machine_stands_alone() -> None:
    for host in HOSTS:
        for check in checks(host):
            assert check.title and isinstance(check.severity, Severity), host
            if check.status is Status.FAILED:
                assert check.message and check.why, (host, check.code)
                assert "\n" not in check.message and "\n" not in check.command, (host, check.code)
                assert check.evidence, (host, check.code)
            elif check.status in (Status.UNKNOWN, Status.SKIPPED):
                assert check.message, (host, check.code)


def test_every_hazard_is_tried_on_a_machine_that_has_it_and_on_one_that_lacks_it() -> None:
    has, lacks = tables()

    assert set(CODES) - has == set()
    assert set(CODES) - lacks == set()
    assert has | lacks <= set(CODES)


# ---- reports from elsewhere ----------------------------------------------------------------------

JUNK: list[Any] = [
    *(True, False, 0, -1, 2**63 - 1, 1e308, "", "\0\x1b[2J", "9" * 5000, "x" * 5000),
    *([], [0], ["x"], [[]], [{}], {}, {"": ""}, {"x": {"y": [1]}}, [{"name": 1}], [None]),
]


def with_junk(host: str, value: Any) -> Report:
    """Return a report in which every fact of every probe is that value."""
    base = report(host)
    probes = {}
    for name, probe in base.probes.items():
        facts = dict.fromkeys(facts_of(name), value)
        probes[name] = msgspec.structs.replace(probe, facts=facts)
    return msgspec.structs.replace(base, probes=probes)


@pytest.mark.parametrize("value", JUNK, ids=[repr(value)[:20] for value in JUNK])
def test_facts_that_make_no_sense_cost_a_check_and_not_the_command(value: Any) -> None:
    for host in ("broken-environment", "stale-conda-workstation", "hgx-h100-eight-gpus"):
        found = examine(with_junk(host, value)).checks

        assert {check.code for check in found} == set(CODES)
        assert msgspec.json.encode(found)


PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text()
TREES = st.recursive(
    PLAIN, lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside), max_leaves=6
)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_facts_are_examined(data: st.DataObject) -> None:
    base = report("stale-conda-workstation")
    probe = data.draw(st.sampled_from(sorted(base.probes)))
    names = list(facts_of(probe))
    facts = data.draw(st.dictionaries(st.sampled_from(names), TREES)) if names else {}
    told = msgspec.structs.replace(base.probes[probe], facts=facts)

    found = examine(msgspec.structs.replace(base, probes={**base.probes, probe: told})).checks

    assert {check.code for check in found} == set(CODES)
