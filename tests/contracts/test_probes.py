"""What every probe promises: its words, its facts, its codes; held for those that are not written yet."""

from __future__ import annotations

import ast
import json
import re
import string
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from mlbackends.base import registry
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Fact, Finding, Presence, Report
from mlbackends.survey import all_codes, survey
from mlbackends_cli.report import probes
from mlbackends_cli.report.commands.schema import report_schema
from mlbackends_probes import _checks, _processor_checks

ROOT = Path(__file__).resolve().parents[2]
#: Our own: other distributions may add to them.
PROBES = tuple(sorted(registry.own_names("mlbackends_probes")))
MODULES = {name: registry.load("mlbackends_probes", name) for name in PROBES}
SOURCES = [path for folder in ("core", "kernels", "probes") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return report_schema()


@pytest.fixture(scope="module")
def live() -> Report:
    """Survey this machine, whatever it is, up to the highest rung."""
    return survey(PROBES, timeout=60)


def probes_named_in(test: Path) -> set[str]:
    """Return the probes that a file of tests imports, or names as a text or in the key of a table."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "mlbackends_probes":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_every_probe_has_a_test_of_its_own() -> None:
    """A new probe needs a test in tests/probes, by its name."""
    ours = set(PROBES)
    tests = sorted((ROOT / "tests" / "probes").glob("test_*.py"))
    named = set().union(*(probes_named_in(path) for path in tests))

    assert "cudnn" in ours
    assert ours - named == set()


def test_a_docstring_says_what_is_found_and_from_where() -> None:
    texts = {name: module.__doc__ or "" for name, module in MODULES.items()}
    # First line: 'Label: what it is.'
    unlabelled = [name for name, text in texts.items() if not re.match(r"[^:\n]+: [^\n]+\.\n", text)]
    lacking = [
        (name, paragraph)
        for name, text in texts.items()
        for paragraph in ("Finds:", "Source:")
        if f"\n{paragraph} " not in text
    ]

    assert (unlabelled, lacking) == ([], [])


def test_facts_are_declared_once_in_words() -> None:
    declared = msgspec.json.decode((ROOT / "probes/mlbackends_probes/facts.json").read_bytes())
    groups = {name for name in declared if name.startswith("_")}
    assert declared.keys() - groups <= set(PROBES)
    for name, module in MODULES.items():
        rows = [
            *getattr(module, "FACTS", ()),
            *msgspec.convert(declared.get(name, []), list[Fact | str]),
        ]
        names = [row if isinstance(row, str) else row.name for row in rows]

        assert len(names) == len(set(names)), name
        assert {row for row in rows if isinstance(row, str)} <= groups, name
        for fact in facts_of(name).values():
            where = f"{name}.{fact.name}"
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", fact.name), where
            assert fact.role in ("fact", "metric", "identity", "volatile"), where
            assert fact.doc.endswith("."), where


def test_the_summary_names_declared_facts() -> None:
    for name, module in MODULES.items():
        for item in getattr(module, "SUMMARY", ()):
            template = item if "{" in item else f"{{{item}}}"
            fields = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            assert fields <= {*facts_of(name), "version"}, name


def test_what_is_usual_is_a_value_of_a_fact_that_the_summary_shows() -> None:
    for name, module in MODULES.items():
        for fact, value in getattr(module, "USUAL", {}).items():
            msgspec.convert(value, facts_of(name)[fact].kind, strict=True)
            assert any(f"{{{fact}}}" in item or item == fact for item in module.SUMMARY), name


def test_a_group_is_one_that_the_page_shows() -> None:
    assert {probes.group(name) for name in PROBES} <= set(probes.GROUPS)


@pytest.mark.parametrize("name", PROBES)
def test_an_empty_machine_is_no_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()

    finding = registry.load("mlbackends_probes", name).find(Host(str(tmp_path)))

    assert isinstance(finding, Finding)
    assert not finding.libraries
    assert not finding.devices


@pytest.mark.parametrize("depth", [Presence.FOUND, Presence.USABLE])
def test_this_machine_s_report_validates(depth: Presence, schema: dict[str, Any], live: Report) -> None:
    report = live if depth is Presence.USABLE else survey(PROBES, depth=depth)

    jsonschema.validate(
        msgspec.json.decode(msgspec.json.encode(report)),
        schema,
        cls=jsonschema.Draft202012Validator,
    )


def test_no_probe_fails_here(live: Report) -> None:
    failed = {name: probe.failure for name, probe in live.probes.items() if probe.failure}

    assert failed == {}


def test_a_report_can_be_read_back(live: Report) -> None:
    assert msgspec.json.decode(msgspec.json.encode(live), type=Report) == live


def test_a_library_is_usable_exactly_when_it_gives_no_reason(live: Report) -> None:
    for name, probe in live.probes.items():
        for library in probe.libraries:
            assert (library.presence is Presence.USABLE) == (not library.reasons), (name, library)


def codes_in(path: Path) -> set[str]:
    """Return the codes that a file gives to Reason and its like, as far as they are written out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name):
            first = node.args[0]
            if node.func.id in ("Constraint", "NotUsable", "Reason") and isinstance(first, ast.Constant):
                found.add(str(first.value))
    return found


def test_a_reason_s_code_is_in_the_catalogue() -> None:
    codes = all_codes().keys()
    unknown = {str(path.relative_to(ROOT)): codes_in(path) - codes for path in SOURCES}

    assert {path: bad for path, bad in unknown.items() if bad} == {}


def test_every_code_of_the_catalogue_is_used_and_tested() -> None:
    endings = ("*.json", "*.toml")
    folders = [ROOT / folder for folder in ("core", "probes")]
    tables = [path for folder in folders for ending in endings for path in folder.rglob(ending)]
    sources = [*tables, *(path for path in SOURCES if path.name != "reasons.py")]
    used = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    tested = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))

    codes = all_codes()
    assert [code for code in codes if f'"{code}"' not in used] == []
    assert [code for code in codes if f'"{code}"' not in tested] == []


def test_a_check_of_a_package_has_the_name_of_its_probe() -> None:
    checks = {path.stem for path in (ROOT / "probes").glob("*/package_checks/*.py")}
    assert checks
    assert checks <= {name for name, module in MODULES.items() if registry.check_of(name, module)}


def test_a_row_lists_what_its_library_is_asked() -> None:
    rows = json.loads((ROOT / "probes/mlbackends_probes/table.json").read_bytes())
    listed = {f"{step}_{name}" for name, row in rows.items() for step in row.get("asks", ())}
    functions = vars(_checks) | vars(_processor_checks)
    assert listed == {name for name in functions if name.startswith(("load_", "use_"))}
