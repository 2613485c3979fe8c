"""The CPU probe on recorded machines of every kind."""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends_probes import cpu

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.model.records import Finding

CPU = "sys/devices/system/cpu"
V2 = "fpu cx8 cmov mmx fxsr sse sse2 syscall lm pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"


def machine(root: Path, name: str, files: dict[str, str | bytes], **recorded: Any) -> Host:
    """Compose a recorded machine; name is the processor as uname spells it."""
    for path, content in files.items():
        at = root / "root" / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content if isinstance(content, bytes) else content.encode())
    (root / "root").mkdir(exist_ok=True)
    (root / "host.json").write_text(json.dumps({"uname": {"machine": name}} | recorded))
    return Host(str(root))


def look(host: Host) -> Finding:
    """Look, and hold the finding against what every finding of this probe must be."""
    finding = cpu.find(host)
    assert finding.presence is Presence.FOUND
    declared = {name: fact.kind for name, fact in facts_of("cpu").items()}
    for name, value in finding.facts.items():
        assert name in declared, name
        msgspec.convert(value, declared[name], strict=True)
    msgspec.json.encode(finding)
    return finding


def x86(flags: str, threads: int = 2, vendor: str = "GenuineIntel") -> dict[str, str | bytes]:
    block = f"vendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: {flags}\n"
    blocks = [f"processor\t: {number}\n{block}" for number in range(threads)]
    files: dict[str, str | bytes] = {"proc/cpuinfo": "\n".join(blocks)}
    files[f"{CPU}/online"] = f"0-{threads - 1}\n"
    return files


def auxiliary(layout: str, hwcap: int, hwcap2: int = 0) -> bytes:
    return b"".join(struct.pack(layout, *entry) for entry in ((16, hwcap), (26, hwcap2), (0, 0)))


def test_an_x86_without_avx512(tmp_path: Path) -> None:
    facts = look(machine(tmp_path, "x86_64", x86(V3 + " avx_vnni", vendor="AuthenticAMD"))).facts
    assert facts["x86_64_level"] == "x86-64-v3"
    assert facts["capability"] == facts["hardware_capability"] == "AVX2"
    assert facts["avx512"] == [] and facts["amx"] == []
    assert facts["vnni"] is True and facts["avx_vnni"] is True
    assert facts["hypervisor"] is False
    assert facts["vendor"] == "AMD"


def test_an_old_x86(tmp_path: Path) -> None:
    facts = look(machine(tmp_path, "x86_64", x86(V2))).facts
    assert facts["x86_64_level"] == "x86-64-v2"
    assert facts["capability"] == "DEFAULT"


def test_a_sapphire_rapids(tmp_path: Path) -> None:
    more = " avx512_vnni avx512_bf16 avx512_fp16 avx_vnni amx_bf16 amx_int8 amx_tile hypervisor"
    facts = look(machine(tmp_path, "x86_64", x86(V4 + more))).facts
    assert facts["x86_64_level"] == "x86-64-v4"
    assert facts["capability"] == "AVX512"
    assert facts["amx"] == ["amx_bf16", "amx_int8", "amx_tile"]
    assert facts["bf16"] is True and facts["fp16"] is True and facts["hypervisor"] is True


def test_avx512_without_conflict_detection_is_torchs_avx512_and_not_v4(tmp_path: Path) -> None:
    facts = look(machine(tmp_path, "x86_64", x86(V4.replace(" avx512cd", "")))).facts
    assert facts["x86_64_level"] == "x86-64-v3"
    assert facts["capability"] == "AVX512"


def test_an_override_above_the_hardware_is_a_warning(tmp_path: Path) -> None:
    environment = {"ATEN_CPU_CAPABILITY": "avx512"}
    finding = look(machine(tmp_path, "x86_64", x86(V3), environment=environment))
    assert finding.facts["capability"] == "AVX512"
    assert finding.facts["hardware_capability"] == "AVX2"
    assert finding.facts["environment"] == environment
    assert [warning.code for warning in finding.warnings] == ["override-exceeds-hardware"]


def test_an_override_in_capitals_is_ignored_with_a_warning(tmp_path: Path) -> None:
    environment = {"ATEN_CPU_CAPABILITY": "AVX2"}
    finding = look(machine(tmp_path, "x86_64", x86(V4), environment=environment))
    assert finding.facts["capability"] == "AVX512"
    assert [warning.code for warning in finding.warnings] == ["override-invalid"]


def graviton(part: str, features: str, sve_bytes: int) -> dict[str, str | bytes]:
    block = (
        f"BogoMIPS\t: 2100.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 1\n"
    )
    return {
        "proc/cpuinfo": "\n".join(f"processor\t: {number}\n{block}" for number in range(4)),
        "proc/sys/abi/sve_default_vector_length": f"{sve_bytes}\n",
        f"{CPU}/online": "0-3\n",
    }


def test_a_graviton_3_runs_torchs_sve256(tmp_path: Path) -> None:
    features = "fp asimd asimdhp asimddp sve bf16 i8mm svebf16"
    facts = look(machine(tmp_path, "aarch64", graviton("0xd40", features, 32))).facts
    assert facts["model_name"] == "Arm Neoverse-V1"
    assert facts["sve_vector_bytes"] == 32
    assert facts["capability"] == "SVE256"
    assert facts["sve"] is True and facts["sve2"] is False and facts["i8mm"] is True
    assert "x86_64_level" not in facts and "kinds" not in facts


def test_a_graviton_4_has_shorter_vectors_and_runs_sve128(tmp_path: Path) -> None:
    features = "fp asimd asimdhp asimddp sve sve2 bf16 i8mm"
    facts = look(machine(tmp_path, "aarch64", graviton("0xd4f", features, 16))).facts
    assert facts["model_name"] == "Arm Neoverse-V2"
    assert facts["sve_vector_bytes"] == 16
    assert facts["capability"] == "SVE128"


def test_an_olympus_tells_the_length_of_its_streaming_vectors(tmp_path: Path) -> None:
    files = graviton("0x010", "fp asimd sve sve2 bf16 i8mm sme sme2", 16)
    files["proc/cpuinfo"] = str(files["proc/cpuinfo"]).replace("0x41", "0x4e")
    files["proc/sys/abi/sme_default_vector_length"] = "32\n"
    facts = look(machine(tmp_path, "aarch64", files)).facts
    assert facts["model_name"] == "NVIDIA Olympus"
    assert facts["sme"] is True and facts["sme_vector_bytes"] == 32


def test_sve_whose_length_is_not_told_claims_no_capability(tmp_path: Path) -> None:
    files = graviton("0xd40", "fp asimd sve bf16", 32)
    del files["proc/sys/abi/sve_default_vector_length"]
    facts = look(machine(tmp_path, "aarch64", files)).facts
    assert "sve_vector_bytes" not in facts and "capability" not in facts


APPLE = """\
kern.ostype: Darwin
hw.ncpu: 12
hw.packages: 1
hw.physicalcpu: 12
hw.logicalcpu: 12
hw.cachelinesize: 128
hw.nperflevels: 2
hw.perflevel0.physicalcpu: 8
hw.perflevel0.logicalcpu: 8
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 16777216
hw.perflevel0.cpusperl2: 4
hw.perflevel0.name: Performance
hw.perflevel1.physicalcpu: 4
hw.perflevel1.logicalcpu: 4
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.cpusperl2: 4
hw.perflevel1.name: Efficiency
hw.optional.AdvSIMD: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_SME: 0
machdep.cpu.brand_string: Apple M2 Max
sysctl.proc_translated: 0
"""


def apple(root: Path, text: str, name: str = "arm64") -> Host:
    (root / "commands").mkdir()
    (root / "commands/sysctl -a").write_bytes(text.encode())
    return machine(root, name, {}, platform="darwin")


def test_an_apple_m2(tmp_path: Path) -> None:
    facts = look(apple(tmp_path, APPLE)).facts
    assert facts["architecture"] == "aarch64"
    assert facts["model_name"] == "Apple M2 Max" and facts["vendor"] == "Apple"
    assert (facts["cores"], facts["threads"], facts["threads_per_core"]) == (12, 12, 1)
    assert facts["kinds"] == [
        {"name": "performance", "threads": 8, "cores": 8},
        {"name": "efficiency", "threads": 4, "cores": 4},
    ]
    assert facts["neon"] is True and facts["bf16"] is True and facts["sme"] is False
    assert facts["capability"] == "DEFAULT"
    assert "translated" not in facts
    table = facts["caches"]
    assert isinstance(table, list)
    assert table[-2:] == [
        {
            "level": 2,
            "type": "unified",
            "size_bytes": 16 << 20,
            "line_bytes": 128,
            "instances": 2,
            "shared_by_cpus": 4,
            "kind": "performance",
        },
        {
            "level": 2,
            "type": "unified",
            "size_bytes": 4 << 20,
            "line_bytes": 128,
            "instances": 1,
            "shared_by_cpus": 4,
            "kind": "efficiency",
        },
    ]


def test_an_intel_mac(tmp_path: Path) -> None:
    text = """\
hw.physicalcpu: 8
hw.logicalcpu: 16
hw.packages: 1
hw.cpufrequency: 2300000000
hw.cachelinesize: 64
hw.l1dcachesize: 32768
hw.l3cachesize: 16777216
hw.optional.avx512f: 0
machdep.cpu.vendor: GenuineIntel
machdep.cpu.brand_string: Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz
machdep.cpu.family: 6
machdep.cpu.model: 158
machdep.cpu.features: FPU CX8 CMOV MMX FXSR SSE SSE2 SSE3 SSSE3 FMA SSE4.1 SSE4.2 MOVBE POPCNT
machdep.cpu.leaf7_features: BMI1 AVX2 BMI2
machdep.cpu.extfeatures: SYSCALL EM64T LAHF LZCNT
"""
    text = text.replace("FPU ", "FPU CX16 XSAVE AVX1.0 F16C ")
    facts = look(apple(tmp_path, text, "x86_64")).facts
    assert facts["vendor"] == "Intel"
    assert facts["x86_64_level"] == "x86-64-v3"
    assert facts["capability"] == "AVX2"
    assert (facts["cores"], facts["threads"], facts["threads_per_core"]) == (8, 16, 2)
    assert facts["base_hertz"] == 2_300_000_000


@pytest.mark.parametrize("text", ["", "\0\n", "hw.ncpu: many\nhw.nperflevels: 99999\n", ":::\n"])
def test_a_mac_that_tells_nonsense(tmp_path: Path, text: str) -> None:
    facts = look(apple(tmp_path, text)).facts
    assert facts == {"architecture": "aarch64", "machine": "arm64"}


def test_a_power9(tmp_path: Path) -> None:
    block = "cpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\nrevision\t: 2.3\n"
    files: dict[str, str | bytes] = {
        "proc/cpuinfo": "\n".join(f"processor\t: {number}\n{block}" for number in range(4)),
        "proc/self/auxv": auxiliary("<QQ", 1 << 28 | 1 << 7, 1 << 31 | 1 << 23),
        f"{CPU}/online": "0-3\n",
        f"{CPU}/present": "0-7\n",
    }
    for number in range(4):
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = "0-3\n"
    facts = look(machine(tmp_path, "ppc64le", files)).facts
    assert facts["power_generation"] == 9
    assert facts["vsx"] is True and facts["mma"] is False
    assert facts["capability"] == "VSX"
    assert (facts["cores"], facts["threads_per_core"], facts["offline_cpus"]) == (1, 4, "4-7")


def test_a_z15(tmp_path: Path) -> None:
    text = (
        "vendor_id       : IBM/S390\n# processors    : 2\n"
        "features\t: esan3 zarch vx vxd vxe vxe2\n"
        "cache0 : level=1 type=Data scope=Private size=128K line_size=256 associativity=8\n"
        "processor 0: version = FF,  identification = 1133E8,  machine = 8561\n"
    )
    finding = look(machine(tmp_path, "s390x", {"proc/cpuinfo": text}))
    facts = finding.facts
    assert facts["model_name"] == "IBM z15" and facts["threads"] == 2
    assert facts["vxe"] is True and facts["nnpa"] is False
    assert facts["capability"] == "Z VECTOR"
    assert facts["caches"] == [
        {"level": 1, "type": "data", "size_bytes": 128 << 10, "line_bytes": 256, "ways": 8}
    ]
    assert b"1133E8" not in msgspec.json.encode(finding)


def test_a_riscv_with_vectors(tmp_path: Path) -> None:
    text = "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdcv_zba_zvfh\nmvendorid\t: 0x710\n"
    facts = look(machine(tmp_path, "riscv64", {"proc/cpuinfo": text})).facts
    assert facts["vendor"] == "SpacemiT"
    assert facts["riscv_vector"] is True and facts["fp16"] is True and facts["bf16"] is False
    assert facts["riscv_vector_extensions"] == ["zvfh"]
    assert facts["capability"] == "DEFAULT"


def test_a_folder_of_proc_alone_is_a_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor : 0\nflags : {V3}\n")
    facts = look(Host(str(tmp_path))).facts
    assert facts["architecture"] == "x86_64" and facts["capability"] == "AVX2"
    assert facts["threads"] == 1
    assert "machine" not in facts


def test_mitigations_and_smt_are_told(tmp_path: Path) -> None:
    files = x86(V3) | {
        f"{CPU}/smt/control": "forceoff\n",
        f"{CPU}/smt/active": "0\n",
        f"{CPU}/vulnerabilities/gather_data_sampling": "Mitigation: Microcode\n",
        f"{CPU}/vulnerabilities/l1tf": "Not affected\n",
    }
    finding = look(machine(tmp_path, "x86_64", files))
    assert finding.facts["smt"] == "forceoff" and finding.facts["smt_active"] is False
    assert finding.facts["costly_mitigations"] == ["gather_data_sampling"]
    assert [warning.code for warning in finding.warnings] == ["mitigation-costs-speed"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("on\n", "on"),
        ("notimplemented\n", "notimplemented"),
        ("4\n", "4"),
        *((text, None) for text in ("maybe", "ON", "0", "44", "on off", "", "\0")),
    ],
)
def test_smt_is_what_the_kernel_can_say(tmp_path: Path, text: str, told: str | None) -> None:
    files = x86(V3) | {f"{CPU}/smt/control": text}
    assert look(machine(tmp_path, "x86_64", files)).facts.get("smt") == told


def test_a_cpu_that_is_not_affected_says_so(tmp_path: Path) -> None:
    files = x86(V3) | {
        f"{CPU}/vulnerabilities/{name}": "Not affected\n" for name in ("l1tf", "mds")
    }
    facts = look(machine(tmp_path, "x86_64", files)).facts
    assert facts["mitigations"] == {} and facts["costly_mitigations"] == []
    assert facts["not_affected"] == ["l1tf", "mds"]


def two_kinds() -> dict[str, str | bytes]:
    """Return a chip of two small cores, then two large ones, of which the last is clocked higher."""
    files: dict[str, str | bytes] = {f"{CPU}/online": "0-3\n"}
    blocks = []
    for number, (part, capacity, most, allowed, base, size) in enumerate(
        [("0xd87", 718, 2_808_000, 2_808_000, 1200, "512K")] * 2
        + [("0xd85", 997, 3_900_000, 2_000_000, 2400, "2048K")]
        + [("0xd85", 1024, 4_004_000, 4_004_000, 2400, "2048K")]
    ):
        blocks.append(f"processor\t: {number}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n")
        files |= {
            f"{CPU}/cpu{number}/cpu_capacity": f"{capacity}\n",
            f"{CPU}/cpu{number}/acpi_cppc/nominal_freq": f"{base}\n",
            f"{CPU}/cpufreq/policy{number}/cpuinfo_max_freq": f"{most}\n",
            f"{CPU}/cpufreq/policy{number}/scaling_max_freq": f"{allowed}\n",
            f"{CPU}/cpu{number}/cache/index2/level": "2\n",
            f"{CPU}/cpu{number}/cache/index2/type": "Unified\n",
            f"{CPU}/cpu{number}/cache/index2/size": f"{size}\n",
            f"{CPU}/cpu{number}/cache/index2/shared_cpu_list": f"{number}\n",
        }
    return files | {"proc/cpuinfo": "\n".join(blocks)}


def test_each_kind_of_core_speaks_for_itself(tmp_path: Path) -> None:
    facts = look(machine(tmp_path, "aarch64", two_kinds())).facts
    names = ("name", "cpus", "part", "capacity", "base_hertz", "max_hertz", "limit_hertz")
    kinds = facts["kinds"]
    assert isinstance(kinds, list)
    assert [tuple(kind[name] for name in names) for kind in kinds] == [
        ("Cortex-X925", "2-3", "0xd85", 1024, 2_400_000_000, 4_004_000_000, 4_004_000_000),
        ("Cortex-A725", "0-1", "0xd87", 718, 1_200_000_000, 2_808_000_000, 2_808_000_000),
    ]
    assert (facts["base_hertz"], facts["limit_hertz"]) == (2_400_000_000, 4_004_000_000)
    assert facts["capped_cpus"] == "2"
    shared = {"level": 2, "type": "unified", "instances": 2, "shared_by_cpus": 1}
    assert facts["caches"] == [
        {**shared, "size_bytes": 2 << 20, "kind": "Cortex-X925"},
        {**shared, "size_bytes": 512 << 10, "kind": "Cortex-A725"},
    ]
    assert "part" not in facts and facts["vendor"] == "Arm"


# ---- systems that py-cpuinfo reads -------------------------------------------------------------


def test_a_system_without_a_reader_of_ours_is_read_by_py_cpuinfo(tmp_path: Path) -> None:
    report = {
        "arch": "X86_64",
        "count": 8,
        "vendor_id_raw": "AuthenticAMD",
        "brand_raw": "AMD EPYC 7763 64-Core Processor",
        "hz_advertised": [2450000000, 0],
        "family": 25,
        "model": 1,
        "stepping": 1,
        "flags": ["avx", "avx2", "bmi1", "sse3"],
        "l2_cache_size": 524288,
        "l3_cache_size": "32 MB",
    }
    system = {"py_cpuinfo": report, "cpu_count": 8}
    host = machine(tmp_path, "amd64", {}, platform="freebsd14", system=system)

    facts = look(host).facts

    assert (facts["vendor"], facts["model_name"]) == ("AMD", "AMD EPYC 7763 64-Core Processor")
    assert facts["model_name_source"] == "py-cpuinfo"
    assert (facts["microarchitecture"], facts["threads"]) == ("Zen 3", 8)
    assert (facts["base_hertz"], facts["avx2"]) == (2_450_000_000, True)
    assert facts["caches"] == [
        {"level": 2, "type": "unified", "size_bytes": 512 << 10},
        {"level": 3, "type": "unified", "size_bytes": 32 << 20},
    ]


def test_a_system_on_which_py_cpuinfo_fails_has_its_count_of_cpus(tmp_path: Path) -> None:
    host = machine(tmp_path, "sun4v", {}, platform="sunos5", system={"cpu_count": 64})
    assert look(host).facts["threads"] == 64


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="on other systems it is the only witness")
def test_py_cpuinfo_agrees_on_this_machine() -> None:
    host = Host()
    report = host.system("py_cpuinfo")
    facts = look(host).facts
    if facts["architecture"] != "x86_64":
        pytest.skip("py-cpuinfo reads other fields there")
    ours = [facts[name] for name in ("vendor_id", "model_name", "family", "model", "stepping")]
    fields = ("vendor_id_raw", "brand_raw", "family", "model", "stepping")
    assert ours == [report[field] for field in fields]
    features = facts["features"]
    assert isinstance(features, list)
    assert set(features) <= set(report["flags"])


def test_every_feature_fact_is_declared() -> None:
    names = {name for facts in table("host/cpu/features")["facts"].values() for name in facts}
    assert names <= facts_of("cpu").keys()


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    assert look(machine(tmp_path, "", {})).facts == {}


READ = (
    "proc/cpuinfo", "proc/self/auxv", "proc/sys/abi/sve_default_vector_length",
    "sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus", f"{CPU}/online", f"{CPU}/present",
    f"{CPU}/isolated", f"{CPU}/smt/control", f"{CPU}/smt/active", f"{CPU}/intel_pstate/no_turbo",
    f"{CPU}/cpu0/cpu_capacity", f"{CPU}/cpu0/topology/core_cpus_list",
    f"{CPU}/cpu0/topology/package_cpus_list", f"{CPU}/cpu0/topology/physical_package_id",
    f"{CPU}/cpu0/topology/die_cpus_list", f"{CPU}/cpu0/cache/index0/level",
    f"{CPU}/cpu0/cache/index0/size", f"{CPU}/cpu0/cache/index0/type",
    f"{CPU}/cpu0/cache/index0/shared_cpu_list", f"{CPU}/cpu0/cpufreq/cpuinfo_min_freq",
    f"{CPU}/cpu0/cpufreq/scaling_governor", f"{CPU}/cpufreq/policy0/cpuinfo_max_freq",
    f"{CPU}/vulnerabilities/mds", "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/meminfo", "sys/devices/system/node/node0/distance",
)  # fmt: skip


@pytest.mark.parametrize("path", READ)
def test_one_file_of_garbage_spoils_nothing_else(tmp_path: Path, path: str) -> None:
    facts = look(machine(tmp_path, "x86_64", x86(V3) | {path: b"\0\xff garbage"})).facts
    if path != "proc/cpuinfo":
        assert facts["capability"] == "AVX2"
        assert facts["threads"] == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=300), st.sampled_from(["x86_64", "aarch64", "s390x", "riscv64", ""]))
def test_random_bytes_as_cpuinfo_never_raise(tmp_path: Path, data: bytes, name: str) -> None:
    look(machine(tmp_path, name, {"proc/cpuinfo": data, "proc/self/auxv": data}))
