"""nnpack, qnnpack, xnnpack, kleidiai, acl: kernels for neural networks, most inside torch."""

from __future__ import annotations

import json
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


def test_nnpack_convolves(asked: Asked, fake_library: FakeLibrary) -> None:
    defines = ("STATUS=0", "SPOIL=")

    _, library = asked("nnpack", fake_library("nnpack", "libnnpack.so", defines=defines))

    assert library.presence is Presence.USABLE


def test_a_wrong_convolution_is_not_usable(asked: Asked, fake_library: FakeLibrary) -> None:
    defines = ("STATUS=0", "SPOIL=+1")

    _, library = asked("nnpack", fake_library("nnpack", "libnnpack.so", defines=defines))

    assert [reason.code for reason in library.reasons] == ["wrong-result"]


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [(51, "unsupported-hardware", "level-3 cache"), (52, "call-failed", "out of memory")],
)
def test_nnpack_says_why_it_refuses_a_processor(
    asked: Asked, fake_library: FakeLibrary, status: int, code: str, word: str
) -> None:
    defines = (f"STATUS={status}", "SPOIL=")

    _, library = asked("nnpack", fake_library("nnpack", "libnnpack.so", defines=defines))

    assert library.presence is Presence.LOADABLE
    (reason,) = library.reasons
    assert reason.code == code
    assert word in reason.message


@pytest.mark.parametrize("prefix", ["pytorch_qnnp", "qnnp"])
def test_qnnpack_clamps_under_either_name(asked: Asked, fake_library: FakeLibrary, prefix: str) -> None:
    defines = ("STATUS=0", f"PREFIX={prefix}")

    _, library = asked("qnnpack", fake_library("qnnpack", "libqnnpack.so", defines=defines))

    assert library.presence is Presence.USABLE


def test_qnnpack_that_refuses_the_processor_is_unsupported_hardware(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    defines = ("STATUS=4", "PREFIX=qnnp")

    _, library = asked("qnnpack", fake_library("qnnpack", "libqnnpack.so", defines=defines))

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["unsupported-hardware"]


def test_a_qnnpack_without_its_functions_misses_a_symbol(asked: Asked, fake_library: FakeLibrary) -> None:
    _, library = asked("qnnpack", fake_library("qnnpack", "libqnnpack.so", source="int a;\n"))

    assert [reason.code for reason in library.reasons] == ["missing-symbol"]


@pytest.mark.parametrize(
    ("status", "presence", "code"),
    [
        (0, Presence.LOADABLE, "no-use-check"),
        (5, Presence.FOUND, "unsupported-hardware"),
        (6, Presence.FOUND, "call-failed"),
    ],
)
def test_xnnpack_is_initialised_and_not_said_to_compute(
    asked: Asked, fake_library: FakeLibrary, status: int, presence: Presence, code: str
) -> None:
    source = f"int xnn_initialize(const void *a) {{ return a ? 2 : {status}; }}\n"

    _, library = asked("xnnpack", fake_library("xnnpack", "libXNNPACK.so", source=source))

    assert library.presence is presence
    assert [reason.code for reason in library.reasons] == [code]


@pytest.mark.parametrize(
    ("probe", "function"),
    [
        ("nnpack", "nnp_initialize"),
        ("qnnpack", "pytorch_qnnp_initialize"),
        ("xnnpack", "xnn_initialize"),
    ],
)
def test_what_torch_has_built_in_is_found_by_its_functions(
    tmp_path: Path, fake_library: FakeLibrary, probe: str, function: str
) -> None:
    site = tmp_path / "root" / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    carrier = site / "torch" / "lib" / "libtorch_cpu.so"
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))
    source = f"int {function}(void) {{ return 0; }}\n"
    shutil.copy(fake_library("torch", "libtorch_cpu.so", source=source), carrier)
    with_it = survey((probe,), Host(str(tmp_path))).probes[probe]
    shutil.copy(fake_library("torch", "libtorch_cpu.so", source="int other;\n"), carrier)
    without_it = survey((probe,), Host(str(tmp_path))).probes[probe]

    assert with_it.presence is Presence.FOUND
    assert with_it.libraries[0].path == "/site/torch/lib/libtorch_cpu.so"
    assert without_it.presence is Presence.ABSENT
    assert "inside torch" in without_it.reasons[0].message


def test_kleidiai_is_only_for_arm(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"uname": {"machine": "x86_64"}}))
    elsewhere = registry.load("mlbackends_probes", "kleidiai").find(Host(str(tmp_path)))
    (tmp_path / "host.json").write_text(json.dumps({"uname": {"machine": "aarch64"}}))
    on_arm = registry.load("mlbackends_probes", "kleidiai").find(Host(str(tmp_path)))

    assert [reason.code for reason in elsewhere.reasons] == ["not-this-platform"]
    assert [reason.code for reason in on_arm.reasons] == ["not-found"]


def test_the_compute_library_tells_its_release_by_its_build(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    typedef struct { int major, minor, patch; const char *build; } version_t;
    const version_t *AclVersionInfo(void) {
        static version_t told = {0, 1, 0, "arm_compute_version=v23.11 Build options: {}"};
        return &told;
    }
    int AclCreateContext(void **context, int target, const void *options) {
        *context = (void *)1;
        return target || options ? 6 : 0;
    }
    """

    report, library = asked("acl", fake_library("acl", "libarm_compute.so", source=source))

    assert (library.presence, library.version) == (Presence.LOADABLE, "23.11")
    assert report.facts["interface_version"] == "0.1.0"
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_a_context_that_is_refused_keeps_what_was_learned(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    typedef struct { int major, minor, patch; const char *build; } version_t;
    const version_t *AclVersionInfo(void) { static version_t told = {0, 1, 0, 0}; return &told; }
    int AclCreateContext(void) { return 4; }
    """

    report, library = asked("acl", fake_library("acl", "libarm_compute.so", source=source))

    assert library.presence is Presence.FOUND
    assert library.reasons[0].message == "AclCreateContext returned 4 (unsupported target)"
    assert report.facts == {"interface_version": "0.1.0"}


def test_the_compute_library_is_only_for_arm(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text(json.dumps({"uname": {"machine": "ppc64le"}}))

    (reason,) = registry.load("mlbackends_probes", "acl").find(Host(str(tmp_path))).reasons

    assert (reason.code, "ppc64le" in reason.message) == ("not-this-platform", True)


@pytest.mark.parametrize(
    ("defines", "presence", "code"),
    [
        (("STATUS=1", "SPOIL="), Presence.USABLE, ""),
        (("STATUS=0", "SPOIL="), Presence.LOADABLE, "unsupported-hardware"),
        (("STATUS=1", "SPOIL=+1"), Presence.LOADABLE, "wrong-result"),
    ],
    ids=["right", "old-processor", "wrong"],
)
def test_fbgemm_is_usable_where_it_rounds_right(
    fake_library: FakeLibrary,
    monkeypatch: pytest.MonkeyPatch,
    defines: tuple[str, ...],
    presence: Presence,
    code: str,
) -> None:
    path = fake_library("fbgemm", "libfbgemm.so", defines=defines)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(path.parent))

    probe = survey(["fbgemm"], Host()).probes["fbgemm"]
    library = next(library for library in probe.libraries if library.path == str(path))

    assert library.presence is presence
    assert [reason.code for reason in library.reasons] == ([code] if code else [])
