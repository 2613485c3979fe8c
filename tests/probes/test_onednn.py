from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import onednn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary
    from tests.probes.conftest import Asked


# What every version has: the version, the instruction set in effect, engine, stream and memory.
CORE = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
typedef struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } version_t;
const version_t *dnnl_version(void) {
    static version_t told = {MAJOR, 4, 1, "f5ff0a6de16c130053bec1a1aec3a9b826c66f78", RUNTIME, 0};
    return &told;
}
int dnnl_get_effective_cpu_isa(void) { return 0xe7; }
const char *dnnl_cpu_isa2str(int isa) {
    return isa == 0xe7 ? "cpu_isa_avx512_core_bf16" : "unknown cpu_isa";
}
int dnnl_engine_create(void **engine, int kind, size_t index) {
    *engine = (void *)1;
    return kind == 1 && index == 0 ? ENGINE : 2;
}
int dnnl_stream_create(void **stream, void *engine, unsigned flags) {
    *stream = engine;
    return flags == 1 ? 0 : 2;
}
int dnnl_primitive_create(void **primitive, void *plan) { *primitive = plan; return 0; }
int dnnl_stream_wait(void *stream) { (void)stream; return 0; }
typedef struct { int64_t rows, columns, down, right; } desc;
typedef struct { desc layout; float *data; } memory;
int dnnl_memory_create(memory **made, const desc *layout, void *engine, void *data) {
    (void)engine;
    *made = malloc(sizeof **made);
    (*made)->layout = *layout;
    (*made)->data = data;
    return 0;
}
static void describe(desc *made, const int64_t *shape, const int64_t *strides) {
    desc told = {shape[0], shape[1], strides[0], strides[1]};
    *made = told;
}
typedef struct { int which; memory *memory; } operand;
static memory *pick(int which, int count, const operand *all) {
    for (int i = 0; i < count; i++) if (all[i].which == which) return all[i].memory;
    return 0;
}
static float *at(memory *one, int row, int column) {
    return one->data + row * one->layout.down + column * one->layout.right;
}
"""

PRODUCT = """
int dnnl_memory_desc_create_with_strides(desc **made, int dimensions, const int64_t *shape,
                                         int type, const int64_t *strides) {
    *made = malloc(sizeof **made);
    describe(*made, shape, strides);
    return dimensions == 2 && type == 3 ? 0 : 2;
}
int dnnl_matmul_primitive_desc_create(void **plan, void *engine, desc *a, desc *b, desc *bias,
                                      desc *c, void *attributes) {
    (void)engine; (void)a; (void)b; (void)c;
    *plan = (void *)2;
    return bias || attributes ? 2 : 0;
}
int dnnl_primitive_execute(void *primitive, void *stream, int count, const operand *all) {
    (void)primitive; (void)stream;
    memory *a = pick(1, count, all), *b = pick(33, count, all), *c = pick(17, count, all);
    for (int i = 0; i < c->layout.rows; i++)
        for (int j = 0; j < c->layout.columns; j++) {
            *at(c, i, j) = SPOIL;
            for (int k = 0; k < a->layout.columns; k++) *at(c, i, j) += *at(a, i, k) * *at(b, k, j);
        }
    return 0;
}
"""

TRANSPOSITION = """
int dnnl_memory_desc_init_by_strides(desc *made, int dimensions, const int64_t *shape, int type,
                                     const int64_t *strides) {
    describe(made, shape, strides);
    return dimensions == 2 && type == 3 ? 0 : 2;
}
int dnnl_reorder_primitive_desc_create(void **plan, desc *a, void *from, desc *b, void *into,
                                       void *attributes) {
    (void)a; (void)b;
    *plan = (void *)3;
    return attributes || from != into ? 2 : 0;
}
int dnnl_primitive_execute(void *primitive, void *stream, int count, const operand *all) {
    (void)primitive; (void)stream;
    memory *a = pick(1, count, all), *b = pick(17, count, all);
    for (int i = 0; i < a->layout.rows; i++)
        for (int j = 0; j < a->layout.columns; j++) *at(b, i, j) = *at(a, i, j);
    return 0;
}
"""


def source(body: str, **words: str) -> str:
    text = CORE + body
    for word, value in {"MAJOR": "3", "RUNTIME": "2", "ENGINE": "0", "SPOIL": "0", **words}.items():
        text = text.replace(word, value)
    return text


def test_version_3_multiplies_matrices(asked: Asked, fake_library: FakeLibrary) -> None:
    report, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=source(PRODUCT)))

    assert (library.presence, library.version) == (Presence.USABLE, "3.4.1")
    assert report.facts == {
        "commit": "f5ff0a6de16c130053bec1a1aec3a9b826c66f78",
        "cpu_runtime": "openmp",
        "gpu_runtime": "none",
        "instruction_set": "avx512_core_bf16",
    }


def test_version_2_transposes(asked: Asked, fake_library: FakeLibrary) -> None:
    code = source(TRANSPOSITION, MAJOR="2")

    _, library = asked("onednn", fake_library("dnnl", "libdnnl.so.2", source=code))

    assert (library.presence, library.version) == (Presence.USABLE, "2.4.1")


def test_a_wrong_product_is_not_usable(asked: Asked, fake_library: FakeLibrary) -> None:
    code = source(PRODUCT, SPOIL="1")

    _, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=code))

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["wrong-result"]


def test_an_engine_that_is_refused_names_the_status(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    code = source(PRODUCT, ENGINE="5")

    _, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=code))

    assert library.presence is Presence.LOADABLE
    assert library.reasons[0].message == "dnnl_engine_create returned 5 (runtime error)"


def test_a_sycl_build_is_not_made_to_compute(asked: Asked, fake_library: FakeLibrary) -> None:
    code = source(PRODUCT, RUNTIME="0x200")

    report, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=code))

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

    report, _ = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=source(PRODUCT)))

    assert [warning.code for warning in report.warnings] == codes


def test_a_version_that_is_no_address_is_an_error_of_the_call(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    code = "void *dnnl_version(void) { return 0; }\n"

    _, library = asked("onednn", fake_library("dnnl", "libdnnl.so.3", source=code))

    assert library.presence is Presence.FOUND
    assert [reason.code for reason in library.reasons] == ["call-failed"]


@pytest.mark.parametrize("new_strings", ["1", "0"])
def test_the_copy_inside_torch_tells_its_version_as_a_cxx_string(
    tmp_path: Path, new_strings: str
) -> None:
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

    (library,) = (one for one in report.libraries if one.path == str(carrier))
    assert (library.presence, library.version) == (Presence.LOADABLE, "3.7.1")
    assert {**library.facts, **report.facts}["commit"] == "8d263e693366ef8db40acc569cc7d8ed"
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_variables_of_both_prefixes_are_facts(fake_library: FakeLibrary) -> None:
    path = fake_library("dnnl", "libdnnl.so.3", source=source(PRODUCT))
    environment = {
        "LD_LIBRARY_PATH": str(path.parent),
        "ONEDNN_DEFAULT_FPMATH_MODE": "bf17",
        "DNNL_VERBOSE": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX512_COR",
        "DNNL_MAX_CPU_ISA": "AVX10_3_512",
    }

    finding = onednn.find(Host(python={"path": []}, environment=environment))

    told = finding.facts["environment"]
    assert told == {name: value for name, value in environment.items() if "DNN" in name}
    assert [warning.message.split(" is ")[0] for warning in finding.warnings] == [
        "ONEDNN_MAX_CPU_ISA",
        "ONEDNN_DEFAULT_FPMATH_MODE",
    ]
