"""The example policies on recorded machines: what fits passes, and each planted fault is found."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.audit.policy import language
from mlbackends.audit.policy.draft import written
from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.reader import Document, parsed
from mlbackends.audit.policy.rules import declared, read
from mlbackends.audit.reports import report_of
from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import Library, Presence, ProbeReport, Report
from mlbackends_cli.report.commands.schema import SCHEMAS

TESTS = Path(__file__).resolve().parents[3]
POLICIES = TESTS / "policies"
TODAY = dt.date(2026, 12, 1)
FILES = sorted(POLICIES.rglob("*.toml"))


def audited(policy: str, report: Report, today: dt.date = TODAY) -> dict[str, Check]:
    outcome = audit([read(str(POLICIES / f"{policy}.toml"))], report, today)
    return {check.code: check for check in outcome.checks}


def recorded(host: str) -> Report:
    return report_of(str(TESTS / "hosts" / f"{host}.machine"))


def changed(report: Report, probe: str, **fields: Any) -> Report:
    """Return the report with other fields of a probe; its facts are added to those that are there."""
    old = report.probes.get(probe, ProbeReport(Presence.ABSENT))
    facts = {**old.facts, **fields.pop("facts", {})}
    return replace(report, probes={**report.probes, probe: replace(old, facts=facts, **fields)})


def failed(checks: dict[str, Check], least: Severity = Severity.WARNING) -> set[str]:
    return {
        code
        for code, check in checks.items()
        if check.status is Status.FAILED and check.severity.level >= least.level
    }


@pytest.mark.parametrize(
    ("policy", "host"),
    [
        ("ci-runner", "docker-cgroup1"),
        ("ci-runner", "nested-cgroup2"),
        ("training-node", "hgx-h100-eight-gpus"),
        ("laptop", "macbook-m3"),
        ("laptop", "alder-lake-hybrid"),
    ],
)
def test_a_machine_as_it_is_meant_passes(policy: str, host: str) -> None:
    assert failed(audited(policy, recorded(host))) == set()


@pytest.mark.parametrize(
    ("policy", "host", "found"),
    [
        ("ci-runner", "hgx-h100-eight-gpus", {"no-gpu"}),
        ("ci-runner", "ivy-bridge-desktop", {"avx2"}),
        ("training-node", "slurm-job", {"eight-gpus", "driver-branch", "persistence"}),
        ("laptop", "broken-environment", {"gpu-driver", "memory"}),
    ],
)
def test_a_machine_of_another_kind_does_not(policy: str, host: str, found: set[str]) -> None:
    assert found <= failed(audited(policy, recorded(host)))


def two_runtimes() -> tuple[Library, ...]:
    return tuple(
        Library("openmp", f"/venv/lib/{name}", soname=name, wins=True)
        for name in ("libgomp.so.1", "libiomp5.so")
    )


RUNNER = recorded("docker-cgroup1")
NODE = recorded("hgx-h100-eight-gpus")
MAC = recorded("macbook-m3")
GPUS = NODE.probes["nvidia"].devices
LOST = Reason("gpu-lost", "nvmlDeviceGetHandleByIndex returned 15")

FIRST = GPUS[0]
NARROW = replace(FIRST, facts={**FIRST.facts, "max_pcie_width": 8})
#: For each policy what is found on its machine instead, and the rule that it breaks.
FAULTS: dict[str, tuple[Report, list[tuple[str, dict[str, Any], str]]]] = {
    "ci-runner": (
        RUNNER,
        [
            ("cpu", {"facts": {"capability": "DEFAULT"}}, "avx2"),
            ("limits", {"facts": {"effective_cpus_exact": 1.5}}, "two-cpus"),
            ("limits", {"facts": {"effective_memory_bytes": 2 << 30}}, "memory"),
            ("environment", {"facts": {"variables": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}}, "no-instruction-cap"),
            ("openmp", {"presence": Presence.FOUND, "libraries": two_runtimes()}, "one-openmp"),
            ("host", {"facts": {"libc": "glibc", "libc_version": "2.17"}}, "glibc"),
            ("nvidia", {"presence": Presence.USABLE, "devices": GPUS[:1]}, "no-gpu"),
        ],
    ),
    "training-node": (
        NODE,
        [
            ("nvidia", {"devices": GPUS[1:]}, "eight-gpus"),
            ("nvidia", {"devices": (replace(FIRST, reasons=(LOST,)), *GPUS[1:])}, "all-answer"),
            ("nvidia", {"devices": (replace(FIRST, name="NVIDIA A100"), *GPUS[1:])}, "gpu-model"),
            ("nvidia", {"version": "550.54.15"}, "driver-branch"),
            ("nvidia", {"version": "610.1"}, "driver-branch"),
            ("nvidia", {"devices": (NARROW, *GPUS[1:])}, "pcie-width"),
            ("nvidia", {"devices": (*GPUS, replace(FIRST, kind="mig"))}, "no-mig"),
            ("nvidia", {"facts": {"fabric_manager": False}}, "fabric-manager"),
            ("nvidia", {"facts": {"persistence_daemon": False}}, "persistence"),
            ("cpu", {"facts": {"capability": "AVX2"}}, "avx512"),
            ("host", {"facts": {"shared_memory_bytes": 64 << 20}}, "shared-memory"),
        ],
    ),
    "laptop": (
        MAC,
        [
            (
                "environment",
                {"facts": {"variables": {"KMP_DUPLICATE_LIB_OK": "TRUE"}}},
                "openmp-duplicates-not-hidden",
            ),
            ("nvidia", {"presence": Presence.USABLE, "version": "470.1"}, "gpu-driver"),
            ("memory", {"facts": {"total_bytes": 8 << 30}}, "memory"),
            ("mps", {"presence": Presence.ABSENT}, "metal"),
            ("mps", {"facts": {"is_translated": True}}, "native-python"),
        ],
    ),
}  # fmt: skip
PLANTED = [(policy, report, *fault) for policy, (report, faults) in FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("policy", "report", "probe", "fields", "code"), PLANTED)
def test_a_planted_fault_is_found(
    policy: str, report: Report, probe: str, fields: dict[str, Any], code: str
) -> None:
    assert code in failed(audited(policy, changed(report, probe, **fields)))


def test_every_rule_of_the_examples_has_a_fault_that_it_finds() -> None:
    rules = {rule.id for file in FILES for rule in read(str(file)).rules}

    # cudnn is waived; numpy-2 and cpu-build-of-torch are notes.
    assert rules - {code for *_, code in PLANTED} == {"cudnn", "numpy-2", "cpu-build-of-torch"}


def test_a_lost_gpu_is_told_once() -> None:
    checks = audited("training-node", changed(NODE, "nvidia", devices=GPUS[1:]))

    assert failed(checks) == {"eight-gpus"}
    assert checks["pcie-width"].status is Status.SKIPPED


def test_a_waiver_that_has_run_out_fails_again() -> None:
    before = audited("training-node", NODE, dt.date(2027, 1, 31))["cudnn"]
    after = audited("training-node", NODE, dt.date(2027, 2, 1))["cudnn"]

    assert before.status is Status.WAIVED
    assert after.status is Status.FAILED
    assert "it was accepted until 2027-01-31" in after.message


def test_a_node_without_a_gpu_is_not_meant() -> None:
    checks = audited("training-node", recorded("zen4-two-sockets"))

    assert checks["eight-gpus"].status is Status.SKIPPED
    assert failed(checks) == set()


VALIDATOR = jsonschema.Draft202012Validator(SCHEMAS["policy"]())


def as_json(value: Any) -> Any:
    """Return a table as editors see it: dates as texts."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, dt.date) else value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_fits_the_schema_of_editors(file: Path) -> None:
    VALIDATOR.validate(as_json(tomllib.loads(file.read_text())))


def test_a_policy_that_was_written_fits_the_schema_of_editors() -> None:
    VALIDATOR.validate(as_json(tomllib.loads(written(NODE))))


def test_the_schema_is_one_and_knows_every_key() -> None:
    schema = SCHEMAS["policy"]()
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, keys in language.TABLES.items():
        assert schema["$defs"][name or "policy"]["properties"].keys() == {key.name for key in keys}


@pytest.mark.parametrize(
    "text",
    [
        'schema = 1\n[[rule]]\nid = "a"\n',
        'schema = 1\n[[rule]]\nid = "a"\nfact = "cpu.cores"\nmin = 1\nmax = 2\n',
        'schema = 1\n[[rule]]\nid = "a"\nmin = 1\n',
        'schema = 1\n[[rule]]\nid = "a"\ncheck = "cpu present"\nfact = "cpu"\n',
        'schema = 1\n[[rule]]\nid = "a"\ncheck = "cpu present"\nseverity = "bad"\n',
        "schema = 2\n",
        "schema = 1\nnme = 'x'\n",
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(text: str) -> None:
    with pytest.raises(BadInput):
        declared(parsed(text.encode(), "/nowhere/policy.toml", "/nowhere"))
    assert not VALIDATOR.is_valid(tomllib.loads(text))


TEXTS = [file.read_bytes() for file in FILES]
PIECES = [
    b"[[rule]]", b'"""', b"'", b"[", b"]", b"{", b"}", b"=", b"\n", b"\xff", b"\0", b"#", b"true",
    b"nan", b"-1", b"1979-05-27", b"[*]", b"[kind == ", b"(a+)+b", b"present", b"schema = 2",
    b"99999999999999999999", b"\\", b"..", b"count", b"min", b"id", b"fact", b"extends = ['x']\n",
    b"inf", b"\xc3\xa9", b"<=>", b" and ",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw an example with some pieces cut out, put in, doubled or swapped."""
    data = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 30)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4) | st.just(data[start:end] * 2))
        data = data[:start] + piece + data[end:]
    return data


@settings(max_examples=300)
@given(mutated() | st.binary(max_size=200))
def test_a_spoilt_policy_is_refused_in_one_line_or_is_one(data: bytes) -> None:
    said = ""
    try:
        policy = declared(parsed(data, str(POLICIES / "spoilt.toml"), str(POLICIES)))
        for report in (NODE, RUNNER):
            audit([policy], report, TODAY)
    except BadInput as error:
        said = str(error)
    assert not said or said.splitlines() == [said]
    assert not said or "spoilt.toml" in said


TOML = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["cpu", "cpu.cores", "note"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
KEYS = st.sampled_from([key.name for keys in language.TABLES.values() for key in keys])
RULES = st.lists(st.dictionaries(KEYS, TOML, max_size=5).map(lambda table: {"id": "a", **table}), max_size=2)


@given(st.dictionaries(KEYS, TOML, max_size=3), RULES)
def test_tables_of_any_shape_are_refused_or_are_a_policy(
    top: dict[str, Any], rules: list[dict[str, Any]]
) -> None:
    tables = {**top, "schema": 1, "rule": rules}
    said = ""
    try:
        policy = declared(Document("a.toml", "", tables, path="/nowhere/a.toml", folder="/nowhere"))
        audit([policy], RUNNER, TODAY)
    except BadInput as error:
        said = str(error)
    assert not said or said.startswith("a.toml:1: ")
