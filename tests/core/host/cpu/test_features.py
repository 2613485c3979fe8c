"""Feature names, x86-64 levels, and what other systems call the same things."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.tables import table
from mlbackends.host.cpu.features import (
    canonical,
    feature_facts,
    features_of,
    features_of_macos,
    isa_features,
    x86_64_level,
)
from mlbackends.host.host import Host
from mlbackends.host.system.kernel import HWCAP, HWCAP2, auxiliary_vector

if TYPE_CHECKING:
    from pathlib import Path


def test_a_level_needs_all_levels_below_it() -> None:
    everything = frozenset[str]().union(*table("host/cpu/features")["x86_64_levels"].values())
    assert x86_64_level(everything) == "x86-64-v4"
    assert x86_64_level(everything - {"popcnt"}) == "x86-64-v1"
    assert x86_64_level(everything - {"movbe"}) == "x86-64-v2"
    assert x86_64_level(everything - {"avx512cd"}) == "x86-64-v3"
    assert x86_64_level(frozenset()) == ""


def test_a_feature_that_one_cpu_lacks_is_none_of_the_machine() -> None:
    blocks = [{"features": "fp asimd sve"}, {"features": "fp asimd"}]
    assert features_of("aarch64", blocks, {}) == {"fp", "asimd"}


def test_power_tells_its_features_in_the_auxiliary_vector_only() -> None:
    power10 = {HWCAP: 1 << 28 | 1 << 7, HWCAP2: 1 << 18 | 1 << 17}
    features = features_of("ppc64le", [{"cpu": "POWER10, altivec supported"}], power10)
    assert features == {"altivec", "vsx", "arch_3_1", "mma"}


def test_words_that_are_no_names_are_left_out() -> None:
    blocks = [{"flags": "avx2 \ufffd\ufffd " + "x" * 1000 + " fma"}]
    assert features_of("x86_64", blocks, {}) == {"avx2", "fma"}


@pytest.mark.parametrize(
    ("isa", "extensions"),
    [
        ("rv64imafdc", {"i", "m", "a", "f", "d", "c"}),
        ("rv64gcv_zba_zvfh", {"g", "i", "m", "a", "f", "d", "c", "v", "zba", "zvfh"}),
        ("rv64imafdczba", {"i", "m", "a", "f", "d", "c", "zba"}),
        ("nonsense", set()),
        ("", set()),
    ],
)
def test_a_riscv_isa_string_is_taken_apart(isa: str, extensions: set[str]) -> None:
    assert isa_features(isa) == extensions


def test_riscv_vector_that_the_kernel_switched_off_is_not_there() -> None:
    letters = sum(1 << ord(letter) - ord("a") for letter in "imafdc")
    features = features_of("riscv64", [{"isa": "rv64imafdcv_zvfh_zba"}], {HWCAP: letters})
    assert features == {"i", "m", "a", "f", "d", "c", "zba"}


def test_macos_names_become_those_of_linux() -> None:
    controls = {
        "machdep.cpu.features": "FPU SSE3 SSE4.1 FMA AVX1.0 XSAVE",
        "machdep.cpu.leaf7_features": "AVX2 AVX512F AVX512VNNI",
        "machdep.cpu.extfeatures": "LAHF LZCNT EM64T",
        "hw.optional.avx512f": "0",
    }
    found = features_of_macos(controls)
    assert {"pni", "sse4_1", "fma", "avx", "avx2", "avx512_vnni", "abm", "lahf_lm", "lm"} <= found
    assert "avx512f" not in found


def test_names_of_cpuid_readers_become_those_of_linux() -> None:
    assert canonical(["SSE3", "lzcnt", "avx512vl"]) == {"pni", "abm", "avx512vl"}


def test_no_feature_known_means_no_fact_rather_than_false() -> None:
    assert feature_facts("x86_64", frozenset()) == {}


def test_facts_belong_to_their_architecture() -> None:
    facts = feature_facts("aarch64", frozenset({"asimd", "asimddp", "bf16"}))
    assert facts["neon"] is True and facts["dotprod"] is True and facts["bf16"] is True
    assert facts["sve"] is False
    assert "avx2" not in facts


@pytest.mark.parametrize("layout", ["<QQ", ">QQ", "<II", ">II"])
def test_an_auxiliary_vector_of_any_machine_is_read(tmp_path: Path, layout: str) -> None:
    entries = ((33, 4096), (HWCAP, 0x1234), (6, 65536), (0, 0))
    (tmp_path / "proc/self").mkdir(parents=True)
    data = b"".join(struct.pack(layout, *entry) for entry in entries)
    (tmp_path / "proc/self/auxv").write_bytes(data)
    assert auxiliary_vector(Host(str(tmp_path))) == {33: 4096, HWCAP: 0x1234, 6: 65536}


@pytest.mark.parametrize("data", [b"", b"\0", b"\0" * 64, b"\xff" * 64, b"text\n", b"\1" * 33])
def test_an_auxiliary_vector_of_garbage_is_empty(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/auxv").write_bytes(data)
    assert auxiliary_vector(Host(str(tmp_path))) == {}
