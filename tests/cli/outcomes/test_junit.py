"""JUnit: valid by the rules of Jenkins, read back by junitparser, and only errors fail."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from junitparser import Failure, JUnitXml, Skipped
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Severity, Status

if TYPE_CHECKING:
    from pathlib import Path

# What Jenkins' schema (junit-10.xsd of its xunit plugin) lets stand where: the attributes that must
# be there, those that may be, and the children. It was held against the schema itself when written.
ENDINGS = {"type", "message"}
RULES: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": (set(), ENDINGS, set()),
    "error": (set(), ENDINGS, set()),
    "skipped": (set(), ENDINGS, set()),
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}  # fmt: skip
MIXED = ENDINGS | {"failure", "error", "skipped", "system-out", "system-err"}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def parsed(text: str) -> ET.Element:
    """Read a document, and hold it to the rules."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        needed, allowed, children = RULES[element.tag]
        assert needed <= set(element.attrib) <= needed | allowed
        assert {child.tag for child in element} <= children
        assert element.tag in MIXED or not (element.text or "").strip()
        assert not (element.tail or "").strip()
        if element.tag == "testsuite":
            assert TIME.fullmatch(element.get("time", "0"))
    suite = root[0]
    cases = list(suite.iter("testcase"))
    assert suite.get("tests") == str(len(cases))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(len(list(suite.iter(tag))))
    return root


def names(root: ET.Element) -> list[str]:
    return [case.get("name", "") for case in root.iter("testcase")]


def test_the_sample_is_as_it_was() -> None:
    assert written("junit", sample()) == (GOLDEN / "sample.xml").read_text(encoding="utf-8")


def test_junitparser_reads_it_back() -> None:
    suite = next(iter(JUnitXml.fromstring(written("junit", sample()).encode())))
    ends = Counter(type(end) for case in suite for end in case.result)

    properties = list(suite.properties())  # type: ignore[no-untyped-call]

    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (8, 2, 0, 5)
    assert ends == {Failure: 2, Skipped: 5}
    assert ("backends.kind", "doctor") in {(part.name, part.value) for part in properties}


def test_names_are_unique_and_tell_the_file(tmp_path: Path) -> None:
    report = tmp_path / "node 0115.json"
    report.touch()
    twice = Check("a.b", "", Severity.ERROR, Status.FAILED)
    root = parsed(written("junit", with_checks(twice, twice, subject=str(report))))

    assert names(root) == ["a.b", "a.b (2)"]
    assert {case.get("classname") for case in root.iter("testcase")} == {"backends.doctor.node_0115"}


@given(ANY)
def test_any_outcome_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    root = parsed(written("junit", outcome))

    assert len(names(root)) == len(outcome.checks)
    assert len(list(root.iter("failure"))) == len(outcome.failed(Severity.ERROR))


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    root = parsed(written("junit", outcome))

    assert failed_codes(outcome) <= {re.sub(r" \(\d+\)$", "", name) for name in names(root)} | set(
        names(root)
    )


def test_a_case_is_named_by_the_problem_that_it_is_of() -> None:
    first = Check("flash_cpu", "it computes", instance="--shape 1,2,8,8")
    second = Check("flash_cpu", "it computes", instance="--shape 1,2,8,8 --causal")

    found = names(parsed(written("junit", with_checks(first, second, second))))
    assert found == [
        "flash_cpu --shape 1,2,8,8",
        "flash_cpu --shape 1,2,8,8 --causal",
        "flash_cpu --shape 1,2,8,8 --causal (2)",
    ]
