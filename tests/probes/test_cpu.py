"""The CPU probe on recorded machines of every kind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends_probes import cpu

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine

    from mlbackends.model.records import Finding

CPU = "sys/devices/system/cpu"
V2 = "fpu cx8 cmov mmx fxsr sse sse2 syscall lm pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"


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


def test_avx512_without_conflict_detection_is_torchs_avx512_and_not_v4(machine: Machine) -> None:
    facts = look(machine(uname={"machine": "x86_64"}, files=x86(V4.replace(" avx512cd", "")))).facts
    assert facts["x86_64_level"] == "x86-64-v3"
    assert facts["capability"] == "AVX512"


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


def test_an_olympus_tells_the_length_of_its_streaming_vectors(machine: Machine) -> None:
    files = graviton("0x010", "fp asimd sve sve2 bf16 i8mm sme sme2", 16)
    files["proc/cpuinfo"] = str(files["proc/cpuinfo"]).replace("0x41", "0x4e")
    files["proc/sys/abi/sme_default_vector_length"] = "32\n"
    facts = look(machine(uname={"machine": "aarch64"}, files=files)).facts
    assert facts["model_name"] == "NVIDIA Olympus"
    assert facts["sme"] is True and facts["sme_vector_bytes"] == 32


def test_sve_whose_length_is_not_told_claims_no_capability(machine: Machine) -> None:
    files = graviton("0xd40", "fp asimd sve bf16", 32)
    del files["proc/sys/abi/sve_default_vector_length"]
    facts = look(machine(uname={"machine": "aarch64"}, files=files)).facts
    assert "sve_vector_bytes" not in facts and "capability" not in facts


def apple(machine: Machine, root: Path, text: str, name: str = "arm64") -> Host:
    (root / "commands").mkdir()
    (root / "commands/sysctl -a").write_bytes(text.encode())
    return machine(uname={"machine": name}, platform="darwin")


def test_an_intel_mac(tmp_path: Path, machine: Machine) -> None:
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
    facts = look(apple(machine, tmp_path, text, "x86_64")).facts
    assert facts["vendor"] == "Intel"
    assert facts["x86_64_level"] == "x86-64-v3"
    assert facts["capability"] == "AVX2"
    assert (facts["cores"], facts["threads"], facts["threads_per_core"]) == (8, 16, 2)
    assert facts["base_hertz"] == 2_300_000_000


@pytest.mark.parametrize("text", ["", "\0\n", "hw.ncpu: many\nhw.nperflevels: 99999\n", ":::\n"])
def test_a_mac_that_tells_nonsense(tmp_path: Path, machine: Machine, text: str) -> None:
    facts = look(apple(machine, tmp_path, text)).facts
    assert facts == {"architecture": "aarch64", "machine": "arm64"}


def test_a_folder_of_proc_alone_is_a_machine(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor : 0\nflags : {V3}\n")
    facts = look(Host(str(tmp_path))).facts
    assert facts["architecture"] == "x86_64" and facts["capability"] == "AVX2"
    assert facts["threads"] == 1
    assert "machine" not in facts


def test_mitigations_and_smt_are_told(machine: Machine) -> None:
    files = x86(V3) | {
        f"{CPU}/smt/control": "forceoff\n",
        f"{CPU}/smt/active": "0\n",
        f"{CPU}/vulnerabilities/gather_data_sampling": "Mitigation: Microcode\n",
        f"{CPU}/vulnerabilities/l1tf": "Not affected\n",
    }
    finding = look(machine(uname={"machine": "x86_64"}, files=files))
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
def test_smt_is_what_the_kernel_can_say(machine: Machine, text: str, told: str | None) -> None:
    files = x86(V3) | {f"{CPU}/smt/control": text}
    assert look(machine(uname={"machine": "x86_64"}, files=files)).facts.get("smt") == told


# ---- systems that py-cpuinfo reads -------------------------------------------------------------


def test_a_system_without_a_reader_of_ours_is_read_by_py_cpuinfo(machine: Machine) -> None:
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
    host = machine(uname={"machine": "amd64"}, platform="freebsd14", system=system)

    facts = look(host).facts

    assert (facts["vendor"], facts["model_name"]) == ("AMD", "AMD EPYC 7763 64-Core Processor")
    assert facts["model_name_source"] == "py-cpuinfo"
    assert (facts["microarchitecture"], facts["threads"]) == ("Zen 3", 8)
    assert (facts["base_hertz"], facts["avx2"]) == (2_450_000_000, True)
    assert facts["caches"] == [
        {"level": 2, "type": "unified", "size_bytes": 512 << 10},
        {"level": 3, "type": "unified", "size_bytes": 32 << 20},
    ]


def test_a_system_on_which_py_cpuinfo_fails_has_its_count_of_cpus(machine: Machine) -> None:
    host = machine(uname={"machine": "sun4v"}, platform="sunos5", system={"cpu_count": 64})
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
