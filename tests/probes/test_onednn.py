from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary
    from tests.probes.conftest import Asked


def test_version_3_multiplies_matrices(asked: Asked, fake_library: FakeLibrary) -> None:
    report, library = asked("onednn", fake_library("onednn", "libdnnl.so.3"))

    assert (library.presence, library.version) == (Presence.USABLE, "3.4.1")
    assert report.facts == {
        "commit": "f5ff0a6de16c130053bec1a1aec3a9b826c66f78",
        "cpu_runtime": "openmp",
        "gpu_runtime": "none",
        "instruction_set": "avx512_core_bf16",
    }


def test_version_2_transposes(asked: Asked, fake_library: FakeLibrary) -> None:
    _, library = asked("onednn", fake_library("onednn", "libdnnl.so.2", defines=("MAJOR=2",)))

    assert (library.presence, library.version) == (Presence.USABLE, "2.4.1")


def test_a_wrong_product_is_not_usable(asked: Asked, fake_library: FakeLibrary) -> None:
    _, library = asked("onednn", fake_library("onednn", "libdnnl.so.3", defines=("SPOIL=1",)))

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["wrong-result"]


def test_an_engine_that_is_refused_names_the_status(asked: Asked, fake_library: FakeLibrary) -> None:
    _, library = asked("onednn", fake_library("onednn", "libdnnl.so.3", defines=("ENGINE=5",)))

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].message == "dnnl_engine_create returned 5 (runtime error)"


def test_a_sycl_build_is_not_made_to_compute(asked: Asked, fake_library: FakeLibrary) -> None:
    report, library = asked("onednn", fake_library("onednn", "libdnnl.so.3", defines=("RUNTIME=0x200",)))

    assert report.facts["cpu_runtime"] == "sycl"
    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("AVX2", ["override-invalid"]),
        ("avx512_core_bf16", []),
        ("AVX512_CORE_AMX", ["override-exceeds-hardware"]),
        ("ALL", []),
    ],
)
def test_the_limit_on_instructions_is_held_against_what_is_in_effect(
    asked: Asked,
    fake_library: FakeLibrary,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    codes: list[str],
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", value)

    report, _ = asked("onednn", fake_library("onednn", "libdnnl.so.3"))

    assert [warning.code for warning in report.warnings] == codes


def test_a_version_that_is_no_address_is_an_error_of_the_call(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    code = "void *dnnl_version(void) { return 0; }\n"

    _, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=code))

    assert library.presence is Presence.FOUND
    assert [reason.code for reason in library.reasons] == ["call-failed"]


@pytest.mark.parametrize("new_strings", ["1", "0"])
def test_the_copy_inside_torch_tells_its_version_as_a_cxx_string(tmp_path: Path, new_strings: str) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (c++) to make the fake library with")
    import os
    import subprocess

    if os.uname().machine != "x86_64":
        pytest.skip("a C++ string cannot be received by ctypes on this processor")
    code = tmp_path / "carrier.cpp"
    code.write_text(
        "#include <string>\n"
        "namespace at { std::string get_mkldnn_version() {\n"
        'return "Intel(R) MKL-DNN v3.7.1 (Git Hash 8d263e693366ef8db40acc569cc7d8ed)"; } }\n'
    )
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    carrier = folder / "libtorch_cpu.so"
    flags = ["-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={new_strings}"]
    subprocess.run([compiler, *flags, "-o", carrier, code], check=True)

    host = Host(python={"path": [str(tmp_path)]}, environment={})
    report = survey(("onednn",), host, Presence.USABLE).probes["onednn"]

    (library,) = (library for library in report.libraries if library.path == str(carrier))
    assert (library.presence, library.version) == (Presence.LOADABLE, "3.7.1")
    assert {**library.facts, **report.facts}["commit"] == "8d263e693366ef8db40acc569cc7d8ed"
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_variables_of_both_prefixes_are_facts(fake_library: FakeLibrary) -> None:
    path = fake_library("onednn", "libdnnl.so.3")
    environment = {
        "LD_LIBRARY_PATH": str(path.parent),
        "ONEDNN_DEFAULT_FPMATH_MODE": "bf17",
        "DNNL_VERBOSE": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX512_COR",
        "DNNL_MAX_CPU_ISA": "AVX10_3_512",
    }

    finding = registry.load("mlbackends_probes", "onednn").find(
        Host(python={"path": []}, environment=environment)
    )

    told = finding.facts["environment"]
    assert told == {name: value for name, value in environment.items() if "DNN" in name}
    assert [warning.message.split(" is ")[0] for warning in finding.warnings] == [
        "ONEDNN_MAX_CPU_ISA",
        "ONEDNN_DEFAULT_FPMATH_MODE",
    ]
