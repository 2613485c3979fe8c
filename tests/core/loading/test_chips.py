"""Code for a chip: fat binaries and bundles made by hand, packages that have them, GPUs in a root folder."""

import shutil
import struct
import subprocess
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import NotALibrary
from mlbackends.host.cpu.features import level_features
from mlbackends.host.cpu.floors import cpu_floors
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution
from mlbackends.loading.chips import code_for, gpus
from mlbackends.loading.gpu_code import Target, read_all_gpu_code, read_gpu_code
from mlbackends.loading.later import without_driver
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Fault, TargetMachine, Verdict

ARCHITECTURE, FAMILY = 0x100000, 0x200000
PTX, CUBIN, LTO = 1, 2, 8
Entry = tuple[int, int, int]


def container(*entries: Entry, payload: int = 4096) -> bytes:
    """Return a fat binary. entries: kind, number and flags of each."""
    body = b""
    for kind, number, flags in entries:
        numbers = (kind, 0x101, 64, payload, 0, 0, 7, 8, number, 0, flags, 0, payload)
        body += struct.pack("<HHIQIIHHIQQQQ", *numbers) + bytes(payload)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def bundle(*triples: str) -> bytes:
    table = b"".join(struct.pack("<3Q", 4096, 0, len(triple)) + triple.encode() for triple in triples)
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(triples)) + table


def compressed(data: bytes, method: int) -> bytes:
    packed = zlib.compress(data)
    return b"CCOB" + struct.pack("<HHIIQ", 2, method, len(packed) + 24, len(data), 0) + packed


def elf(sections: Mapping[str, bytes], machine: int = 62, kind: int = 3, note: bytes = b"") -> bytes:
    """Return an ELF file with these sections, and a note of its own segment."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    body, headers, at = note, [bytes(64)], 176 + len(note)
    for name, data in (*sections.items(), (".shstrtab", names)):
        body += bytes(-at % 8)
        at += -at % 8
        headers.append(
            struct.pack("<IIQQQQIIQQ", names.index(name.encode() + b"\0"), 1, 2, 0, at, len(data), 0, 0, 8, 0)
        )
        body, at = body + data, at + len(data)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, at, at, 4096)
    property_note = struct.pack("<IIQQQQQQ", 0x6474E553, 4, 176, 0, 0, len(note), len(note), 8)
    identity = b"\x7fELF\2\1\1".ljust(16, b"\0")
    numbers = (kind, machine, 1, 0, 64, at, 0, 64, 56, 2, 64, len(headers), len(headers) - 1)
    return (
        identity + struct.pack("<HHIQQQIHHHHHH", *numbers) + load + property_note + body + b"".join(headers)
    )


@pytest.mark.parametrize(
    ("target", "chips"),
    [
        ("sm_80", "8.0 8.6 8.9"),  # 8.7 is Tegra's
        ("sm_87", "8.7"),
        ("sm_90a", "9.0"),
        ("sm_100f", "10.0 10.3"),
        ("sm_120", "12.0 12.1"),
        ("sm_120a", "12.0"),
        ("compute_90", "9.0 10.0 10.3 11.0 12.0 12.1"),
        ("compute_90a", "9.0"),
        ("compute_120f", "12.0 12.1"),
        ("gfx942", "gfx942 gfx942:xnack+"),
        ("gfx942:sramecc+:xnack-", "gfx942 gfx942:xnack+"),
        ("gfx9-4-generic", "gfx942 gfx950 gfx942:xnack+"),
        ("gfx11xx", "gfx1100 gfx1151"),
        ("gfx11-generic", "gfx1100 gfx1151"),
    ],
)
def test_a_target_runs_on_its_chips_and_no_others(target: str, chips: str) -> None:
    kind = {"s": "sm", "c": "ptx", "g": "gfx"}[target[0]]
    nvidia = "7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1"
    everything = f"{nvidia} gfx90a gfx942 gfx942:xnack+ gfx950 gfx1100 gfx1151 gfx1201".split()
    assert [chip for chip in everything if Target(kind, target).runs_on(chip)] == sorted(
        chips.split(), key=everything.index
    )


def test_each_form_of_gpu_code_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    fat = container((CUBIN, 80, 0), (CUBIN, 90, ARCHITECTURE), (CUBIN, 100, FAMILY), (PTX, 90, 0))
    stub, lto = container((CUBIN, 75, 0), payload=600), container((LTO, 70, 0))
    cubin = elf({"note": b"-arch sm_121a "}, machine=190, kind=2)
    cubin = cubin[:8] + b"\x08" + cubin[9:48] + struct.pack("<I", 121 << 8) + cubin[52:]
    amd = bundle("host-x86_64--", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+").ljust(4096, b"\0")
    amd += compressed(bundle("hipv4-amdgcn-amd-amdhsa--gfx1151"), 0)
    like_one = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40) + bytes(64)
    path.write_bytes(elf({".nv_fatbin": fat + stub + lto, ".ldata": like_one + cubin, ".hip_fatbin": amd}))
    names = ["compute_90", "gfx1151", "gfx90a:xnack+", "lto_70", "sm_100f", "sm_80", "sm_90a"]
    targets = read_gpu_code(str(path)).targets
    assert sorted(target.name for target in targets) == names
    assert {*read_all_gpu_code(str(path)).targets} == {*targets, Target("sm", "sm_121a")}
    # What nothing here decompresses is counted, and never "none".
    path.write_bytes(elf({".hip_fatbin": compressed(b"", 7) * 3}))
    assert read_gpu_code(str(path)).unread == 3
    hsaco = elf({"note": b"amdhsa.target\xbaamdgcn-amd-amdhsa--gfx90a:xnack-"}, machine=224)
    path.write_bytes(hsaco)
    assert read_gpu_code(str(path)).targets == (Target("gfx", "gfx90a:xnack-"),)
    for data, name in ((fat, "sm_80"), (cubin, "sm_121a"), (bundle("hip-amdgcn--gfx950"), "gfx950")):
        (tmp_path / "code").write_bytes(data)
        assert name in [target.name for target in read_gpu_code(str(tmp_path / "code")).targets]


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_code_is_refused_or_read_in_part(tmp_path: Path, data: st.DataObject) -> None:
    whole = elf({
        ".nv_fatbin": container((CUBIN, 80, 0), (PTX, 90, 0), payload=64) * 2,
        ".hip_fatbin": bundle("hip-amdgcn--gfx90a") + compressed(bundle("hip-amdgcn--gfx942"), 0),
    })  # fmt: skip
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole)), st.integers(0, 255)), max_size=8)
    ):
        if at < len(damaged):
            damaged[at] = value
    path = tmp_path / "damaged.so"
    path.write_bytes(damaged)
    for read in (read_gpu_code, read_all_gpu_code):
        with suppress(NotALibrary, OSError):
            assert len(read(str(path)).targets) <= len(whole) // 8


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_what_nvcc_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n")
    codes = {"90a": "sm_90a", "100f": "sm_100f", "120a": "sm_120a", "80": "sm_80", "75": "compute_75"}
    generated = [f"-gencode=arch=compute_{number},code={code}" for number, code in codes.items()]
    run = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", "k.so", "k.cu", *generated]
    subprocess.run(run, cwd=tmp_path, check=True)
    assert {target.name for target in read_gpu_code(str(tmp_path / "k.so")).targets} == set(codes.values())
    subprocess.run(["nvcc", "-cubin", "-arch=sm_120a", "k.cu"], cwd=tmp_path, check=True)
    assert read_gpu_code(str(tmp_path / "k.cubin")).targets == (("sm", "sm_120a"),)


class Machine:
    """A root folder with a package `kernels`, whose files have code."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "site"
        (self.site / "kernels-1.0.dist-info").mkdir(parents=True)
        (root / "proc").mkdir()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def install(self, files: Mapping[str, bytes], metadata: str = "", name: str = "kernels") -> None:
        for path, data in files.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_bytes(data)
        info = f"site/{name.replace('-', '_')}-1.0.dist-info"
        self.write(f"{info}/RECORD", "".join(f"{path},,\n" for path in files))
        self.write(f"{info}/METADATA", f"Name: {name}\nVersion: 1.0\n{metadata}")
        self.write(f"{info}/WHEEL", "Tag: cp311-cp311-manylinux_2_17_x86_64\n")

    def nvidia(self, *models: str, driver: str = "550.54.14") -> None:
        self.write(
            "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  x\n"
        )
        for number, model in enumerate(models):
            folder = f"proc/driver/nvidia/gpus/0000:0{number}:00.0"
            self.write(f"{folder}/information", f"Model: \t\t {model}\nIRQ:   \t\t 35\n")

    def host(self) -> Host:
        return Host(str(self.root), python={"executable": "python", "version": "3.11.2", "path": ["/site"]})

    def code_for(self, *targets: TargetMachine, name: str = "kernels") -> tuple[list[Fault], str]:
        host = self.host()
        dist = distribution(host, name)
        assert dist
        faults, notes = code_for(host, dist, targets)
        return list(faults), "\n".join(notes)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_driver_a_build_for_gpus_falls_back_where_there_is_one(machine: Machine) -> None:
    for name in ("torch", "onnxruntime-gpu", "onnxruntime"):
        machine.install({}, name=name)
        machine.write(f"site/{name.replace('-', '_')}-1.0.dist-info/RECORD", "README,,\n")
    machine.write("site/torch/version.py", "cuda: str = '13.0'\n")

    def answers() -> list[tuple[list[str], int]]:
        host = machine.host()
        dists = [distribution(host, name) for name in ("torch", "onnxruntime-gpu", "onnxruntime")]
        found = [without_driver(host, dist) for dist in dists if dist]
        return [([fault.name for fault in faults], len(notes)) for faults, notes in found]

    assert answers() == [([], 1), ([], 1), ([], 0)]
    for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        machine.write(f"sys/bus/pci/devices/0000:65:00.0/{name}", f"{text}\n")
    assert answers() == [(["libcuda.so.1"], 0), (["libcuda.so.1"], 0), ([], 0)]
    (package,) = resolve(machine.host(), ["onnxruntime-gpu"]).packages
    assert package.verdict is Verdict.FALLS_BACK
    assert "0000:65:00.0" in package.fallbacks[0].cause
    assert "install the driver" in package.fallbacks[0].hint


OLD = elf({".nv_fatbin": container((CUBIN, 80, 0)) + container((CUBIN, 80, 0), (CUBIN, 90, ARCHITECTURE))})


def test_only_a_package_without_code_for_the_gpu_that_is_there_fails(machine: Machine) -> None:
    machine.install({"kernels/_C.so": OLD})
    assert machine.code_for() == ([], "")  # no GPU, nothing to state
    machine.nvidia("NVIDIA GB10")
    [answer] = resolve(machine.host(), ["kernels"]).packages
    assert answer.verdict is Verdict.BREAKS
    [fault] = answer.faults
    assert (fault.code, fault.name) == ("no-code-for-chip", "sm_121")
    assert fault.message == (
        "no kernel image is available for execution on the device: the package has sm_80 and sm_90a;"
        " the chip is sm_121 (NVIDIA GB10)"
    )
    machine.nvidia("NVIDIA GB10", "NVIDIA A100-SXM4-80GB")  # one GPU of two is enough
    faults, notes = machine.code_for()
    assert not faults
    assert "the chip is sm_121" in notes
    machine.nvidia("NVIDIA Graphics Device", "NVIDIA Graphics Device")
    assert machine.code_for() == (
        [],
        "whether it has code for NVIDIA Graphics Device is not known: name the GPU with --for",
    )


def test_code_outside_the_section_for_it_counts(machine: Machine) -> None:
    new = bytes(8) + container((CUBIN, 120, 0))
    machine.install({"kernels/a.so": OLD, "kernels/b.so": elf({".ldata": new})})
    faults, notes = machine.code_for(TargetMachine("gb10", chip="12.1"))
    assert (faults, notes) == ([], "no code for sm_121 in kernels/a.so")


def test_ptx_alone_is_a_note(machine: Machine) -> None:
    machine.install({"kernels/_C.so": elf({".nv_fatbin": container((PTX, 80, 0))})})
    machine.nvidia("NVIDIA H100 80GB HBM3")
    words = "for sm_90 there is PTX only, which the driver compiles at the first use"
    assert machine.code_for() == ([], words)


def test_amd_packages_by_files_names_and_device_wheels(machine: Machine) -> None:
    folder = "sys/class/kfd/kfd/topology/nodes/1"
    machine.write(
        f"{folder}/properties", "simd_count 40\ngfx_target_version 110501\nlocation_id 256\ndomain 0\n"
    )
    assert [gpu.chip for gpu in gpus(machine.host())] == ["gfx1151"]
    names = ("TensileLibrary_gfx942.co", "Kernels.so-000-gfx90a-xnack+.hsaco", "Kernels.so-000-gfx1100.hsaco")
    machine.install({f"kernels/rocblas/library/{name}": b"x" for name in names})
    [fault], _ = machine.code_for()
    assert "the package has gfx1100, gfx90a and gfx942; the chip is gfx1151" in fault.message
    machine.install({"kernels/lib/aotriton.images/amd-gfx11xx/flash/a.aks2": b"x"})
    assert machine.code_for() == ([], "")
    machine.install({}, 'Requires-Dist: amd-kernels-device-gfx1151==1.0; extra == "device-gfx1151"\n')
    [fault], _ = machine.code_for()
    assert "the package has no device wheel; the chip is gfx1151" in fault.message
    assert fault.command == "pip install 'kernels[device-gfx1151]==1.0'"
    machine.install({}, name="amd-kernels-device-gfx1151")
    assert machine.code_for() == ([], "")


def test_compressed_code_that_cannot_be_read_is_no_fault(machine: Machine) -> None:
    machine.install({"kernels/_C.so": elf({".hip_fatbin": compressed(b"", 7)})})
    faults, notes = machine.code_for(TargetMachine("gfx942", chip="gfx942", vendor="amd"))
    assert not faults
    assert "cannot be determined" in notes


def test_tritons_assembler_must_know_the_chip(machine: Machine) -> None:
    compiler = b'suffix = "a" if capability >= 90 else ""'
    machine.install(
        {
            "triton/backends/nvidia/bin/ptxas": b"\0sm_90\0sm_90a\0sm_120\0",
            "triton/backends/nvidia/compiler.py": compiler,
        },
        name="triton",
    )
    assert machine.code_for(TargetMachine("h100", chip="9.0"), name="triton") == ([], "")
    [fault], _ = machine.code_for(TargetMachine("gb10", chip="12.1"), name="triton")
    assert fault.message == "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"


def test_what_wheels_and_files_need_of_a_cpu(machine: Machine) -> None:
    assert all(row.source and row.needs and row.distributions for row in cpu_floors())
    properties = struct.pack("<IIII", 0xC0008002, 4, 4, 0)
    note = struct.pack("<III4s", 4, len(properties), 5, b"GNU\0") + properties
    machine.install({"kernels/_C.so": elf({}, note=note)})
    old = TargetMachine("old", features=tuple(level_features("x86-64-v1")))
    [fault], _ = machine.code_for(old)
    assert (fault.code, fault.name) == ("cpu-too-old", "x86-64-v3")
    assert fault.message.endswith("kernels/_C.so: CPU ISA level is lower than required")
    machine.install({}, name="pylance")
    [fault], _ = machine.code_for(old, name="pylance")
    assert (fault.code, fault.name) == ("cpu-too-old", "AVX2")
    assert machine.code_for(
        TargetMachine("new", features=tuple(level_features("x86-64-v3"))), name="pylance"
    ) == ([], "")
    [fault], _ = machine.code_for(TargetMachine("aarch64", machine="aarch64"))
    assert fault.code == "wrong-architecture"
