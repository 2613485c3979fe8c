"""Names and numbers of processors, from each architecture's own /proc/cpuinfo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import (
    architecture_of,
    designs,
    identity,
    parse_blocks,
    processor_numbers,
    read_blocks,
)
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path

POWER9 = """processor\t: 0
cpu\t\t: POWER9, altivec supported
clock\t\t: 3800.000000MHz
revision\t: 2.3 (pvr 004e 1203)

timebase\t: 512000000
platform\t: PowerNV
model\t\t: 8335-GTH
"""
Z15 = """vendor_id       : IBM/S390
# processors    : 2
features\t: esan3 zarch stfle vx vxd vxe vxe2 vxp sort dflt
cache0          : level=1 type=Data scope=Private size=128K line_size=256 associativity=8
processor 0: version = FF,  identification = 1133E8,  machine = 8561

cpu number      : 0
version         : FF
identification  : 1133E8
machine         : 8561
cpu MHz dynamic : 5200
cpu MHz static  : 5200
"""
VISIONFIVE = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc_zicntr_zicsr_zba_zbb
mmu\t\t: sv39
uarch\t\t: sifive,u74-mc
mvendorid\t: 0x489
marchid\t\t: 0x8000000000000007
"""


def graviton(part: str, revision: str = "1") -> str:
    return f"""processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes asimdhp asimddp sve bf16 i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part}
CPU revision\t: {revision}
"""


def test_an_x86_is_named_by_the_kernel() -> None:
    blocks = parse_blocks(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
        "model name\t: AMD EPYC 9654   96-Core Processor\nstepping\t: 1\nmicrocode\t: 0xa101148\n"
        "flags\t\t: fpu lm\n"
    )
    assert identity("x86_64", blocks) == {
        "vendor_id": "AuthenticAMD",
        "vendor": "AMD",
        "model_name": "AMD EPYC 9654 96-Core Processor",
        "model_name_source": "kernel",
        "microcode": "0xa101148",
        "family": 25,
        "model": 17,
        "stepping": 1,
    }


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("0xd0c", "Arm Neoverse-N1"),
        ("0xd40", "Arm Neoverse-V1"),
        ("0xd49", "Arm Neoverse-N2"),
        ("0xd4f", "Arm Neoverse-V2"),
        ("0xd84", "Arm Neoverse-V3"),
    ],
)
def test_an_arm_core_is_named_by_its_part(part: str, name: str) -> None:
    facts = identity("aarch64", parse_blocks(graviton(part)))
    assert facts["model_name"] == name
    assert facts["model_name_source"] == "part-number"
    assert (facts["vendor"], facts["part"], facts["revision"]) == ("Arm", part, "r1p1")


def test_an_unknown_arm_part_gets_no_name() -> None:
    facts = identity("aarch64", parse_blocks(graviton("0xfff")))
    assert "model_name" not in facts
    assert facts["part"] == "0xfff"


def test_mixed_arm_cores_are_all_named() -> None:
    facts = identity("aarch64", parse_blocks(graviton("0xd46") + "\n" + graviton("0xd48")))
    assert facts["model_name"] == "Arm Cortex-A510 + Cortex-X2"


def test_power_tells_its_generation() -> None:
    facts = identity("ppc64le", parse_blocks(POWER9))
    assert facts == {
        "vendor": "IBM",
        "model_name": "POWER9",
        "model_name_source": "kernel",
        "power_generation": 9,
        "revision": "2.3 (pvr 004e 1203)",
    }


def test_z_is_named_by_its_machine_type_and_keeps_its_serial_number_to_itself() -> None:
    facts = identity("s390x", parse_blocks(Z15))
    assert facts == {
        "vendor_id": "IBM/S390",
        "vendor": "IBM",
        "part": "8561",
        "model_name": "IBM z15",
        "model_name_source": "part-number",
    }


def test_riscv_tells_its_isa_and_its_microarchitecture() -> None:
    facts = identity("riscv64", parse_blocks(VISIONFIVE))
    assert facts["vendor"] == "SiFive"
    assert facts["model_name"] == "sifive,u74-mc"
    assert facts["isa"] == "rv64imafdc_zicntr_zicsr_zba_zbb"


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        ("flags : fpu lm avx\n", "x86_64"),
        ("flags : fpu\n", "x86"),
        (graviton("0xd40"), "aarch64"),
        (POWER9, "ppc64le"),
        (Z15, "s390x"),
        (VISIONFIVE, "riscv64"),
        ("", ""),
        ("what : is this\n", ""),
    ],
)
def test_without_uname_the_form_tells_the_architecture(text: str, architecture: str) -> None:
    assert architecture_of("", parse_blocks(text)) == architecture


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("arm64", "aarch64"), ("AMD64", "x86_64"), ("i686", "x86"), ("ppc64le", "ppc64le")],
)
def test_each_systems_spelling_is_one_architecture(machine: str, architecture: str) -> None:
    assert architecture_of(machine, []) == architecture


def test_of_many_x86_cpus_only_the_first_is_read(tmp_path: Path) -> None:
    block = "processor : {}\nflags : " + "x" * 2000 + "\n\n"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("".join(block.format(cpu) for cpu in range(64)))
    assert len(read_blocks(Host(str(tmp_path)))) == 64
    (tmp_path / "sys/devices/system/cpu/cpu0/topology").mkdir(parents=True)
    assert len(read_blocks(Host(str(tmp_path)))) == 64
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-63\n")
    assert [block["processor"] for block in read_blocks(Host(str(tmp_path)))] == ["0"]


def test_of_arm_cpus_all_are_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-127\n")
    (tmp_path / "proc/cpuinfo").write_text("\n".join(graviton("0xd40") for _ in range(128)))
    assert len(read_blocks(Host(str(tmp_path)))) == 128


def test_the_table_of_arm_cores_has_numbers_as_the_kernel_writes_them() -> None:
    for implementer, maker in table("host/cpu/arm").items():
        assert implementer == f"{int(implementer, 16):#04x}"
        assert maker["name"]
        assert all(part == f"{int(part, 16):#05x}" for part in maker["parts"])


@given(
    st.text(),
    st.sampled_from(["x86_64", "aarch64", "ppc64le", "s390x", "riscv64", "loongarch64", ""]),
)
def test_no_text_raises(text: str, architecture: str) -> None:
    facts = identity(architecture, parse_blocks(text))
    assert all(isinstance(value, (int, str)) for value in facts.values())


KEYS = st.sampled_from(
    ["cpu family", "model name", "CPU part", "CPU implementer", "CPU revision", "isa", "cpu",
     "machine", "mvendorid", "vendor_id", "flags", "stepping"]
)  # fmt: skip


@given(st.lists(st.tuples(KEYS, st.text(max_size=30) | st.integers().map(str))))
def test_no_value_of_a_known_key_raises(lines: list[tuple[str, str]]) -> None:
    blocks = parse_blocks("\n".join(f"{key}\t: {value}" for key, value in lines))
    for architecture in ("x86_64", "aarch64", "ppc64le", "s390x", "riscv64"):
        facts = identity(architecture, blocks)
        assert all(v.isprintable() if isinstance(v, str) else v < 1 << 16 for v in facts.values())


OLD_ARM = """Processor\t: AArch64 Processor rev 4 (aarch64)
processor\t: 0
processor\t: 1
processor\t: 2
Features\t: fp asimd aes
CPU implementer\t: 0x41
CPU architecture: AArch64
CPU variant\t: 0x0
CPU part\t: 0xd03
CPU revision\t: 4

Hardware\t: a board
"""
QUALCOMM = """Processor\t: AArch64 Processor rev 13 (aarch64)
processor\t: 0
BogoMIPS\t: 38.40
Features\t: fp asimd
CPU implementer\t: 0x51
CPU variant\t: 0xd
CPU part\t: 0x805
CPU revision\t: 14

processor\t: 1
CPU implementer\t: 0x51
CPU variant\t: 0xd
CPU part\t: 0x804
CPU revision\t: 14
"""


def test_the_processors_name_in_the_first_line_hides_no_number() -> None:
    assert [block["processor"] for block in parse_blocks(OLD_ARM)[:3]] == ["0", "1", "2"]
    blocks = parse_blocks(QUALCOMM)
    assert [block["processor"] for block in blocks] == ["0", "1"]
    assert {cpu: design.part for cpu, design in designs(blocks).items()} == {0: "0x805", 1: "0x804"}


def test_the_part_of_one_core_is_not_that_of_all() -> None:
    """What is in the file's end belongs to the core that wrote it."""
    assert len(designs(parse_blocks(OLD_ARM))) == 1
    facts = identity("aarch64", parse_blocks(QUALCOMM))
    assert facts["model_name"] == "Qualcomm Kryo 4xx Silver + Kryo 4xx Gold"
    assert "part" not in facts and facts["revision"] == "r13p14"


def test_cores_of_two_makers_have_both_in_the_name() -> None:
    blocks = [
        {"cpu implementer": "0x41", "cpu part": "0xd05"},
        {"cpu implementer": "0x53", "cpu part": "0x002"},
    ]
    facts = identity("aarch64", blocks)
    assert facts["model_name"] == "Arm Cortex-A55 + Samsung Exynos-M3"
    assert not {"vendor", "vendor_id", "part"} & facts.keys()


@pytest.mark.parametrize(
    ("line", "generation", "architecture"),
    [
        ("POWER8NVL (raw), altivec supported", 8, "ppc64le"),
        ("POWER8E (raw), altivec supported", 8, "ppc64le"),
        ("POWER7 (architected), altivec supported", 7, "ppc64"),
        ("POWER7+ (raw), altivec supported", 7, "ppc64"),
        ("POWER10 (raw), altivec supported", 10, "ppc64le"),
        ("Power11 (architected), altivec supported", 11, "ppc64le"),
    ],
)
def test_every_power_has_its_generation_and_byte_order(
    line: str, generation: int, architecture: str
) -> None:
    blocks = parse_blocks(f"processor\t: 0\ncpu\t\t: {line}\n")
    assert architecture_of("", blocks) == architecture
    assert identity("ppc64le", blocks)["power_generation"] == generation


def test_a_z_without_cpu_0_keeps_its_machine_type() -> None:
    text = """vendor_id       : IBM/S390
# processors    : 2
processor 1: version = 00,  identification = 0133E8,  machine = 2964
processor 2: version = 00,  identification = 0133E8,  machine = 2964
"""
    blocks = parse_blocks(text)
    assert identity("s390x", blocks)["model_name"] == "IBM z13"
    assert processor_numbers(blocks) == (1, 2)


@pytest.mark.parametrize(
    ("block", "architecture"),
    [
        ({"isa": "loongarch32r loongarch32s loongarch64"}, "loongarch64"),
        ({"isa": "mips1 mips64r1 mips64r2"}, "mips64"),
        ({"cpu": "PPC970MP, altivec supported", "clock": "2500MHz"}, "ppc64"),
        ({"cpu": "740/750", "clock": "266MHz"}, "ppc"),
        ({"arch": "IA-64"}, "ia64"),
        ({"cpu": "UltraSparc T1 (Niagara)", "type": "sun4v"}, "sparc64"),
    ],
)
def test_cpuinfo_names_the_architecture_where_uname_is_missing(
    block: dict[str, str], architecture: str
) -> None:
    assert architecture_of("", [block]) == architecture
