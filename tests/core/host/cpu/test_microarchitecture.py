"""The names of microarchitectures."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import identity, microarchitecture, parse_blocks


def x86(vendor: str, family: int, model: int, stepping: int = 0) -> dict[str, Any]:
    return {"vendor_id": vendor, "family": family, "model": model, "stepping": stepping}


@pytest.mark.parametrize(
    ("facts", "name", "archspec"),
    [
        (x86("AuthenticAMD", 0x17, 0x31), "Zen 2", "zen2"),  # EPYC 7742
        (x86("AuthenticAMD", 0x17, 0x18), "Zen+", "zen"),  # Ryzen 5 3500U
        (x86("AuthenticAMD", 0x19, 0x01), "Zen 3", "zen3"),  # EPYC 7763
        (x86("AuthenticAMD", 0x19, 0x11), "Zen 4", "zen4"),  # EPYC 9654
        (x86("AuthenticAMD", 0x19, 0x90), "Zen 4", "zen4"),  # Instinct MI300A
        (x86("AuthenticAMD", 0x1A, 0x02), "Zen 5", "zen5"),  # EPYC 9755
        (x86("GenuineIntel", 6, 85, 4), "Skylake-SP", "skylake_avx512"),  # Xeon Gold 6148
        (x86("GenuineIntel", 6, 85, 7), "Cascade Lake", "cascadelake"),  # Xeon Gold 6248
        (x86("GenuineIntel", 6, 85, 11), "Cooper Lake", "cascadelake"),
        (x86("GenuineIntel", 6, 106, 6), "Ice Lake-SP", "icelake"),  # Xeon Platinum 8358
        (x86("GenuineIntel", 6, 143, 8), "Sapphire Rapids", "sapphirerapids"),
        (x86("GenuineIntel", 6, 173, 1), "Granite Rapids", "sapphirerapids"),
        (x86("GenuineIntel", 6, 151, 2), "Alder Lake", "alderlake"),  # Core i7-12700K
        (x86("GenuineIntel", 6, 158, 13), "Coffee Lake", "skylake"),  # Core i9-9900K
        (x86("GenuineIntel", 6, 175, 3), "Sierra Forest", None),
        (x86("GenuineIntel", 19, 1), "Diamond Rapids", None),
        (x86("GenuineIntel", 15, 6), None, None),  # QEMU's kvm64
        (x86("AuthenticAMD", 15, 107), None, None),  # QEMU's qemu64
        (x86("GenuineIntel", 6, 255), None, None),
        ({"vendor_id": "GenuineIntel", "family": 6}, None, None),
        ({"power_generation": 9, "architecture": "ppc64le"}, "POWER9", "power9le"),
        ({"power_generation": 7, "architecture": "ppc64"}, "POWER7", "power7"),
        ({"power_generation": 7, "architecture": "ppc64le"}, "POWER7", None),
        ({"power_generation": 11, "architecture": "ppc64le"}, "POWER11", None),
        ({"model_name": "Apple M3 Pro", "vendor": "Apple"}, "M3", "m3"),
        ({"model_name": "sifive,u74-mc"}, "sifive,u74-mc", "u74mc"),
        ({"model_name": "QEMU Virtual CPU version 2.5+"}, None, None),
        ({}, None, None),
    ],
)
def test_a_processor_has_the_name_of_its_design(
    facts: dict[str, Any], name: str | None, archspec: str | None
) -> None:
    found = microarchitecture(facts.get("architecture", ""), facts)

    assert (found.get("microarchitecture"), found.get("archspec")) == (name, archspec)


@pytest.mark.parametrize(
    ("parts", "name", "archspec"),
    [
        ([("0x41", "0xd4f")], "Neoverse-V2", "neoverse_v2"),
        ([("0x41", "0xd85"), ("0x41", "0xd87")], "Cortex-X925 + Cortex-A725", None),
        ([("0x61", "0x023"), ("0x61", "0x023")], "Firestorm (M1)", "m1"),
        ([("0x6d", "0xd49")], "Azure Cobalt 100", "neoverse_n2"),
        ([("0x41", "0xfff")], None, None),
    ],
)
def test_arm_cores_have_the_names_of_their_parts(
    parts: list[tuple[str, str]], name: str | None, archspec: str | None
) -> None:
    text = "\n\n".join(
        f"processor : {number}\nCPU implementer : {implementer}\nCPU part : {part}"
        for number, (implementer, part) in enumerate(parts)
    )
    found = microarchitecture("aarch64", dict(identity("aarch64", parse_blocks(text))))

    assert (found.get("microarchitecture"), found.get("archspec")) == (name, archspec)


def numbers(ranges: str) -> set[int]:
    ends = [span.partition("-")[::2] for span in ranges.split()]
    return {n for low, high in ends for n in range(int(low, 0), int(high or low, 0) + 1)}


def test_no_processor_has_two_names() -> None:
    """The first that fits is taken, and only Zen+ is part of another's range."""
    names: dict[tuple[Any, ...], str] = {}
    for row in table("host/cpu/microarchitectures")["x86"]:
        for model in numbers(row["models"]):
            for stepping in numbers(row.get("steppings", "0-15")):
                key = row["vendor"], row["family"], model, stepping
                assert names.setdefault(key, row["name"]) in (row["name"], "Zen+")
