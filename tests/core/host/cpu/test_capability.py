"""torch's ladder of CPU kernels, and the variable that overrides it."""

from __future__ import annotations

import pytest

from mlbackends.host.cpu.features import capability, hardware_capability

AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma", "avx2"})


@pytest.mark.parametrize(
    ("architecture", "features", "sve_bytes", "expected"),
    [
        ("x86_64", AVX512, None, "AVX512"),
        ("x86_64", AVX512 - {"avx512dq"}, None, "AVX2"),
        ("x86_64", AVX512 - {"fma"}, None, "DEFAULT"),
        ("x86_64", {"sse4_2", "avx"}, None, "DEFAULT"),
        ("aarch64", {"asimd"}, None, "DEFAULT"),
        ("aarch64", {"asimd", "sve", "bf16"}, 32, "SVE256"),
        ("aarch64", {"asimd", "sve", "bf16"}, 16, "SVE128"),
        ("aarch64", {"asimd", "sve"}, 16, "DEFAULT"),
        ("aarch64", {"asimd", "sve", "bf16"}, 64, "DEFAULT"),
        ("aarch64", {"asimd", "sve"}, 32, "DEFAULT"),
        ("aarch64", {"asimd", "sve", "bf16"}, None, ""),
        ("ppc64le", {"vsx"}, None, "VSX"),
        ("s390x", {"vx", "vxe"}, None, "Z VECTOR"),
        ("s390x", {"vx"}, None, "DEFAULT"),
        ("riscv64", {"v"}, None, "DEFAULT"),
        ("x86_64", set(), None, ""),
        ("sparc64", {"vis"}, None, ""),
    ],
)
def test_the_ladder_is_torchs(
    architecture: str, features: set[str], sve_bytes: int | None, expected: str
) -> None:
    found = hardware_capability(architecture, frozenset(features), sve_bytes, "linux")
    assert found == expected


def test_a_lower_override_is_taken_without_a_word() -> None:
    assert capability("x86_64", "AVX512", "avx2", "linux") == ("AVX2", None)
    assert capability("x86_64", "AVX512", "default", "linux") == ("DEFAULT", None)


def test_an_override_above_the_hardware_is_taken_and_flagged() -> None:
    used, wrong = capability("x86_64", "AVX2", "avx512", "linux")
    assert used == "AVX512"
    assert wrong is not None
    assert wrong.code == "override-exceeds-hardware"
    assert "SIGILL" in wrong.message and "AVX2" in wrong.message


@pytest.mark.parametrize(("hardware", "word"), [("SVE256", "sve128"), ("SVE128", "sve256")])
def test_another_length_of_vectors_falls_to_default(hardware: str, word: str) -> None:
    used, wrong = capability("aarch64", hardware, word, "linux")
    assert used == "DEFAULT" and wrong is not None
    assert capability("aarch64", hardware, hardware.lower(), "linux") == (hardware, None)


def test_sve256_where_it_is_not_falls_to_default() -> None:
    used, wrong = capability("aarch64", "DEFAULT", "sve256", "linux")
    assert used == "DEFAULT"
    assert wrong is not None
    assert wrong.code == "override-exceeds-hardware"


@pytest.mark.parametrize("value", ["AVX2", "avx", "", "sve256", "vsx", "avx512 "])
def test_a_value_torch_does_not_know_is_ignored_and_flagged(value: str) -> None:
    used, wrong = capability("x86_64", "AVX512", value, "linux")
    assert used == "AVX512"
    assert wrong is not None
    assert wrong.code == "override-invalid"
    assert "avx512" in wrong.hint


def test_other_architectures_take_other_words() -> None:
    assert capability("s390x", "Z VECTOR", "zvector", "linux") == ("Z VECTOR", None)
    assert capability("ppc64le", "VSX", "vsx", "linux") == ("VSX", None)
    _, wrong = capability("aarch64", "DEFAULT", "sve256", "darwin")
    assert wrong is not None
    assert wrong.code == "override-invalid"


def test_an_override_on_an_unknown_cpu_is_what_torch_uses() -> None:
    assert capability("x86_64", "", "avx2", "linux") == ("AVX2", None)
