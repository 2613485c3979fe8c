"""The plugin in runs of pytest, on recorded machines and on this one."""

from __future__ import annotations

import contextlib
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# What a run inside this process imports first is forgotten behind it; these stay.
import mlbackends.audit.device_limits
import mlbackends.audit.reports
import mlbackends.sdpa.dispatch
import mlbackends.testing.attention
import mlbackends.testing.element_types
import mlbackends.testing.loadable
import mlbackends.testing.machine
import mlbackends.testing.requirements
import mlbackends.testing.tolerances  # noqa: F401

with contextlib.suppress(ImportError):
    import numpy as np  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Sequence

pytest_plugins = ["pytester"]

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
H100 = f"--backends-report={HOSTS / 'hgx-h100-eight-gpus.machine'}"
MAC = f"--backends-report={HOSTS / 'macbook-m3.machine'}"
PLAIN = f"--backends-report={HOSTS / 'ivy-bridge-desktop.machine'}"
ALONE = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


def ran(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*ALONE, "-rA", *arguments)


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    lines: Sequence[str] = ran(pytester, "--collect-only", "-q", *arguments).outlines
    return [line.partition("::")[2] for line in lines if "::" in line]


# ---- requires_backend ----------------------------------------------------------------------------


def test_a_requirement_that_is_met_lets_the_test_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.requires_backend("cudnn>=9.1", "cpu.capability>=AVX2")
        def test_it(): pass
    """)
    ran(pytester, H100).assert_outcomes(passed=1)


def test_a_requirement_that_is_not_met_skips_with_what_was_seen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.fixture
        def costly(): raise AssertionError("made for nothing")
        @pytest.mark.requires_backend("cudnn>=9.10", reason="needs paged attention")
        def test_it(costly): pass
    """)
    result = ran(pytester, H100)

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*test_a_requirement*.py:4: needs paged attention (requires cudnn>=9.10: cudnn is 9.1.0*"]
    )


def test_marks_of_module_class_and_test_count_together(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest, unittest
        pytestmark = pytest.mark.requires_backend("cpu")
        @pytest.mark.requires_backend("cudnn")
        class TestBoth:
            @pytest.mark.requires_backend("nvidia")
            def test_it(self): pass
        @pytest.mark.requires_backend("cudnn")
        class TestOld(unittest.TestCase):
            def test_it(self): pass
        def test_alone(): pass
    """)
    ran(pytester, H100).assert_outcomes(passed=3)
    ran(pytester, PLAIN).assert_outcomes(passed=1, skipped=2)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("'cudn>=9'", "there is no probe named 'cudn'; did you mean 'cudnn'?"),
        ("'cpu.capabilty>=AVX2'", "did you mean 'cpu.capability'?"),
        ("'cpu.capability>=AVX3'", "can never be met"),
        ("'cudnn>9.x'", "can never be met"),
        ("'cudnn=9'", "did you mean ==9?"),
        ("", "names nothing"),
        ("9.1", "not 9.1"),
        ("'cudnn', resaon='x'", "not resaon="),
        ("'cudnn', strict=1", "a bool as strict="),
    ],
)
def test_a_wrong_requirement_is_a_usage_error_that_names_the_test(
    pytester: pytest.Pytester, mark: str, said: str
) -> None:
    pytester.makepyfile(f"""
        import pytest
        @pytest.mark.requires_backend({mark})
        def test_it(): pass
    """)
    result = ran(pytester, PLAIN)

    assert result.ret is pytest.ExitCode.USAGE_ERROR
    told = "\n".join(result.errlines)
    assert "ERROR: test_a_wrong" in told and "::test_it: " in told and said in told


def test_strict_fails_what_could_not_be_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.requires_backend("rocm>=7", strict=True)
        def test_unsure(): pass
        @pytest.mark.requires_backend("rocm>=7")
        def test_unsure_and_lenient(): pass
        @pytest.mark.requires_backend("cudnn", strict=True)
        def test_surely_not(): pass
    """)
    result = ran(pytester, f"--backends-report={HOSTS / 'podman-rocm-no-access.machine'}")

    result.assert_outcomes(errors=1, skipped=2)
    result.stdout.fnmatch_lines(["requires rocm>=7: *"])


@pytest.mark.parametrize(
    ("option", "errors"),
    [
        ("--backends-strict=all", 2),
        ("--backends-strict=cudnn", 1),
        ("--backends-strict=cpu", 1),
        ("--backends-strict=cpu.capability", 1),
        ("--backends-strict=cpu.cores", 0),
        ("--backends-strict=cudnn,cpu.capability", 2),
    ],
)
def test_a_run_can_demand_that_nothing_is_skipped(
    pytester: pytest.Pytester, option: str, errors: int
) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.requires_backend("cudnn")
        def test_one(): pass
        @pytest.mark.requires_backend("cpu.capability>=AVX512")
        def test_two(): pass
    """)
    ran(pytester, PLAIN, option).assert_outcomes(errors=errors, skipped=2 - errors)


def test_the_ini_file_says_the_same(pytester: pytest.Pytester) -> None:
    pytester.makeini(f"""
        [pytest]
        backends_strict = cudnn
        backends_report = {HOSTS / "ivy-bridge-desktop.machine"}
    """)
    pytester.makepyfile("""
        import pytest
        @pytest.mark.requires_backend("cudnn")
        def test_one(): pass
    """)
    ran(pytester).assert_outcomes(errors=1)


# ---- device --------------------------------------------------------------------------------------

DEVICE_TEST = "def test_it(device): assert isinstance(device, str)"


@pytest.mark.parametrize(
    ("host", "ids"),
    [
        ("hgx-h100-eight-gpus", ["cpu", "cuda"]),
        ("mi300x-eight-gpus", ["cpu", "rocm"]),
        ("macbook-m3", ["cpu", "mps"]),
        ("arc-desktop-no-render", ["cpu"]),
        ("ivy-bridge-desktop", ["cpu"]),
    ],
)
def test_a_test_runs_on_each_device_that_is_there(
    pytester: pytest.Pytester, host: str, ids: list[str]
) -> None:
    pytester.makepyfile(DEVICE_TEST)

    found = collected(pytester, f"--backends-report={HOSTS / host}.machine")

    assert found == [f"test_it[{name}]" for name in ids]


def test_devices_can_be_chosen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEVICE_TEST)

    assert collected(pytester, H100, "--device", "cuda") == ["test_it[cuda]"]
    assert collected(pytester, H100, "--device=cuda:7", "--backends-device=cpu") == [
        "test_it[cuda:7]",
        "test_it[cpu]",
    ]


def test_a_device_that_was_asked_for_and_is_not_there_is_a_skip_with_the_reason(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(DEVICE_TEST)
    result = ran(pytester, PLAIN, "--device=cpu", "--device=cuda")

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*cuda is not usable: no NVIDIA GPU on the PCI bus*"])
    ran(pytester, PLAIN, "--device=cuda", "--backends-strict=device").assert_outcomes(errors=1)
    result = ran(pytester, H100, "--device=cuda:8")
    result.stdout.fnmatch_lines(["*cuda:8 is not usable: cuda devices that are: 0, 1, 2, 3*"])


def test_a_marker_restricts_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.devices("cpu", "mps")
        def test_it(device): pass
    """)
    assert collected(pytester, MAC) == ["test_it[cpu]", "test_it[mps]"]
    ran(pytester, H100).assert_outcomes(passed=1, skipped=1)
    result = ran(pytester, H100, "--device=cuda")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*this test is for cpu and mps; cuda was requested*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("devices('gpu')", "there is no device named 'gpu'"),
        ("devices('cuda:x')", "no device named 'cuda:x'"),
        ("devices()", "takes one name or more"),
        ("requires_loadable()", "takes one name or more"),
        ("devices(3)", "no device named '3'"),
        ("attention_backends('flash')", "no attention backend named 'flash'"),
    ],
)
def test_a_marker_with_a_wrong_name_is_a_usage_error(pytester: pytest.Pytester, mark: str, said: str) -> None:
    pytester.makepyfile(f"""
        import pytest
        @pytest.mark.{mark}
        def test_it(device, attention_backend): pass
    """)
    result = ran(pytester, PLAIN)

    assert result.ret is pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join(result.errlines)


def test_a_package_that_does_not_load_skips_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from mlbackends.testing import requires_loadable
        @requires_loadable("msgspec")
        def test_loads(): pass
        @requires_loadable("msgspec", "no-such-package")
        def test_skips(): pass
    """)
    result = ran(pytester)

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: requires that no-such-package loads: it is not installed"])
    ran(pytester, "--backends-strict=all").assert_outcomes(passed=1, errors=1)


def test_fixtures_of_any_scope_can_stand_on_the_device(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.fixture(scope="session")
        def model(device): return f"model on {device}"
        def test_it(model, device): assert model == f"model on {device}"
    """)
    assert collected(pytester, MAC) == ["test_it[cpu]", "test_it[mps]"]
    ran(pytester, MAC).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "own",
    [
        "def pytest_generate_tests(metafunc):\n    metafunc.parametrize('device', ['a', 'b'])",
        "import pytest\n@pytest.fixture(params=['a', 'b'])\ndef device(request): return request.param",
        "import pytest\npytestmark = pytest.mark.parametrize('device', ['a', 'b'])",
    ],
    ids=["generated", "fixture", "marked"],
)
def test_a_suite_with_devices_of_its_own_keeps_them(pytester: pytest.Pytester, own: str) -> None:
    pytester.makepyfile(f"{own}\ndef test_it(device): assert device in 'ab'")

    ran(pytester, H100).assert_outcomes(passed=2)


def test_a_fixture_may_stand_on_ours_under_the_same_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        @pytest.fixture
        def device(device): return device.upper()
    """)
    pytester.makepyfile("def test_it(device): assert device in ('CPU', 'MPS')")

    ran(pytester, MAC).assert_outcomes(passed=2)


def test_an_option_of_a_conftest_keeps_its_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        def pytest_addoption(parser):
            parser.addoption("--device", default="theirs")
    """)
    pytester.makepyfile("def test_it(request): assert request.config.option.device == 'given'")

    ran(pytester, "--device=given").assert_outcomes(passed=1)


def test_a_device_that_is_asked_for_amid_a_test_is_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(request): assert request.getfixturevalue('device') == 'cpu'")

    ran(pytester, H100).assert_outcomes(passed=1)


def test_indirect_values_are_devices(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.parametrize("device", ["cpu", "mps"], indirect=True)
        def test_it(device): pass
    """)
    ran(pytester, H100).assert_outcomes(passed=1, skipped=1)


# ---- attention_backend ---------------------------------------------------------------------------


def test_attention_runs_with_each_backend_on_each_device(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_alone(attention_backend): pass
        def test_pair(device, attention_backend): assert attention_backend.device == device
    """)
    assert sorted(collected(pytester, MAC, "--attention-backend=math")) == [
        "test_alone[math-cpu]",
        "test_alone[math-mps]",
        "test_pair[cpu-math]",
        "test_pair[mps-math]",
    ]


def test_attention_computes_with_the_backend_that_it_names(pytester: pytest.Pytester) -> None:
    pytest.importorskip("numpy")
    pytester.makepyfile("""
        import numpy
        def test_it(attention_backend, tolerance):
            ones = numpy.ones((1, 2, 4, 8), "float32")
            result = attention_backend.attend(ones, ones, ones, is_causal=True)
            assert attention_backend.answers_to.name == "MATH"
            numpy.testing.assert_allclose(result, ones, **tolerance("float32", "cpu").both)
    """)
    ran(pytester, "--backends-attention=math", "--device=cpu").assert_outcomes(passed=1)


def test_a_backend_that_was_named_and_cannot_is_a_skip_with_all_reasons(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import pytest
        @pytest.mark.attention_backends("math", "efficient_cuda")
        def test_it(attention_backend): pass
    """)
    result = ran(pytester, PLAIN)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*efficient_cuda cannot compute on cpu: *needs cuda tensors*"])
    ran(pytester, PLAIN, "--attention-backend=math").assert_outcomes(passed=1)
    ran(pytester, PLAIN, "--attention-backend=efficient_cuda", "--backends-strict=all").assert_outcomes(
        errors=1
    )


def test_where_no_backend_is_usable_the_test_is_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(attention_backend): pass
        def test_pair(device, attention_backend): pass
    """)
    ran(pytester, PLAIN, "--device=cuda").assert_outcomes(skipped=2)


# ---- what a run is told --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--device=cud", "--device cud: there is no device named 'cud'; did you mean 'cuda'?"),
        ("--backends-strict=cudn", "did you mean 'cudnn'?"),
        ("--backends-strict=cudnn>=9", "the name alone: cudnn"),
        ("--attention-backend=mth", "did you mean 'math'?"),
        ("--backends-report=/nowhere.json", "/nowhere.json cannot be read"),
    ],
)
def test_a_wrong_option_ends_the_run_with_what_would_be_right(
    pytester: pytest.Pytester, argument: str, said: str
) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = ran(pytester, argument)

    assert result.ret is pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join(result.errlines)


@pytest.mark.parametrize(("name", "value"), [("backends_depth", "deep"), ("backends_header", "yes")])
def test_a_wrong_value_in_the_ini_file_is_told(pytester: pytest.Pytester, name: str, value: str) -> None:
    pytester.makeini(f"[pytest]\n{name} = {value}\n")
    result = ran(pytester)

    assert result.ret is pytest.ExitCode.USAGE_ERROR
    assert f"{name} is '{value}'; it can be" in "\n".join(result.errlines)


# ---- the report of a run -------------------------------------------------------------------------

MARKED = """
import pytest
@pytest.mark.requires_backend("cpu")
def test_it(): pass
"""


def facts_in(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("backends: ")]


def test_a_run_that_uses_nothing_of_ours_says_nothing_and_asks_no_probe(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import sys
        def test_it():
            names = [each for each in sys.modules if each.startswith("mlbackends.")]
            assert sorted(names) == [
                "mlbackends.base", "mlbackends.base.lazy", "mlbackends.base.version",
                "mlbackends.testing", "mlbackends.testing.options", "mlbackends.testing.plugin",
            ]
            assert "msgspec" not in sys.modules
    """)
    result = pytester.runpytest_subprocess(*ALONE)

    result.assert_outcomes(passed=1)
    assert facts_in(result) == []


def test_the_facts_stand_in_the_header(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")

    said = facts_in(ran(pytester, H100))

    told = "CPU AVX512, 128 CPUs usable (set by online), accelerators found: 8 cuda (NVIDIA H100 80GB HBM3)"
    assert said == [
        f"backends: {told}, torch 2.6.0+cu124 found",
        f"backends: judged by {HOSTS / 'hgx-h100-eight-gpus.machine'}, not by this machine",
    ]


def test_a_marker_is_enough_for_the_facts_to_be_shown_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKED)

    assert len(facts_in(ran(pytester))) == 1


@pytest.mark.parametrize("argument", ["-q", "--no-header"])
def test_who_wants_no_header_gets_none(pytester: pytest.Pytester, argument: str) -> None:
    pytester.makepyfile(MARKED)

    assert facts_in(ran(pytester, argument)) == []
    assert facts_in(ran(pytester, argument, H100)) == []


@pytest.mark.parametrize(("when", "shown"), [("always", 1), ("auto", 0), ("never", 0)])
def test_the_ini_file_says_when_the_facts_are_shown(pytester: pytest.Pytester, when: str, shown: int) -> None:
    pytester.makeini(f"[pytest]\nbackends_header = {when}\n")
    pytester.makepyfile("def test_it(): pass")

    assert len(facts_in(ran(pytester))) == shown


def properties(path: Path) -> dict[str, str]:
    return {node.get("name", ""): node.get("value", "") for node in ET.parse(path).iter("property")}


def test_the_facts_are_properties_in_the_file_of_junit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKED)
    ran(pytester, H100, "--junit-xml=out.xml")

    told = properties(pytester.path / "out.xml")
    assert told["backends.cpu.capability"] == "AVX512"
    assert told["backends.torch.version"] == "2.6.0+cu124"
    assert told["backends.accelerators"] == "8 cuda (NVIDIA H100 80GB HBM3)"
    assert told["backends.depth"] == "found"


def test_a_run_that_uses_nothing_of_ours_leaves_no_property(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    ran(pytester, "--junit-xml=out.xml")

    assert properties(pytester.path / "out.xml") == {}


# ---- beside other plugins ------------------------------------------------------------------------


def test_it_can_be_turned_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(device): pass")
    result = ran(pytester, "-p", "no:mlbackends")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'device' not found*"])


def test_the_entry_point_loads_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKED)
    result = ran(pytester, "--strict-markers", "-W", "error", PLAIN)

    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_workers_share_one_survey_and_leave_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    scratch = pytester.mkdir("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    pytester.makepyfile("""
        import json, pathlib, pytest
        from mlbackends.testing.machine import current
        @pytest.mark.parametrize("number", range(4))
        def test_it(device, number):
            created = current().report(("nvidia",)).probes["nvidia"].duration_seconds
            with open(pathlib.Path(__file__).with_name("seen"), "a") as file:
                file.write(f"{created}\\n")
        @pytest.mark.requires_backend("cudn")
        def test_wrong(): pass
    """)
    result = pytester.runpytest_subprocess(*ALONE, "-n2", "--junit-xml=out.xml", "--device=cpu,cuda")

    outcomes = result.parseoutcomes()
    assert outcomes["errors"] == 1
    assert outcomes["passed"] >= 4
    result.stdout.fnmatch_lines(["there is no probe named 'cudn'; did you mean 'cudnn'?"])
    assert len(set((pytester.path / "seen").read_text().split())) == 1
    assert "backends.cpu.capability" in properties(pytester.path / "out.xml")
    assert not [name for name in os.listdir(scratch) if name.startswith("mlbackends-")]


def test_the_whole_report_can_be_had(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from mlbackends.testing import unsupported, why_unmet
        def test_it(backends_report):
            assert backends_report.probes["mps"].facts["macos_version"] == "14.5"
            assert unsupported("mps", "float64") and not unsupported("mps", "bfloat16")
            assert why_unmet("cudnn").startswith("cudnn: ") and not why_unmet("mps")
    """)
    ran(pytester, MAC).assert_outcomes(passed=1)
