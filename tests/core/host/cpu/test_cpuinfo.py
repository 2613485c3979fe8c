"""Names and numbers of processors, from each architecture's own /proc/cpuinfo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


def test_an_unknown_arm_part_gets_no_name() -> None:
    facts = identity("aarch64", parse_blocks(graviton("0xfff")))
    assert "model_name" not in facts
    assert facts["part"] == "0xfff"


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
        parts = (part.partition("/") for part in maker["parts"])
        assert all(part == f"{int(part, 16):#05x}" for part, _, _ in parts)


def test_a_variant_may_be_another_core() -> None:
    blocks = [{"cpu implementer": "0x53", "cpu part": "0x001", "cpu revision": "0"}]
    names = [
        identity("aarch64", [blocks[0] | {"cpu variant": variant}])["model_name"]
        for variant in ("0x1", "0x4")
    ]
    assert names == ["Samsung Exynos-M1", "Samsung Exynos-M2"]


def test_sparc_lists_the_state_of_each_cpu() -> None:
    text = "cpu\t\t: SPARC-T5\nncpus probed\t: 4\nncpus active\t: 3\nState:\n" + "".join(
        f"CPU{cpu}:\t\t{state}\n" for cpu, state in enumerate(("online", "online", "offline", "online"))
    )
    text += "".join(f"Cpu{cpu}ClkTck\t: 00000000d693a400\n" for cpu in range(4))
    assert processor_numbers(parse_blocks(text)) == (0, 1, 3)


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
