"""Devices by the names that people type, so that one that is not here can be asked about.

`cpu` and `cuda` are this machine's own; every other name stands for a row of the tables below.
"""

from msgspec import Struct

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.records import Device

_CUDA = "NVIDIA, CUDA C++ Programming Guide, Compute Capabilities; the list of CUDA GPUs"
_GFX = "LLVM, User Guide for AMDGPU Backend, table of processors"
_X86 = "Intel, 64 and IA-32 Architectures Software Developer's Manual, volume 1"
_ARM = "Arm, A-profile Architecture Reference Manual, FEAT_ names; Linux, arm64 ELF hwcaps"


class NamedDevice(Struct, frozen=True):
    """A device that can be asked about. title: which one it is. source: who says so; "" for one here."""

    name: str
    device: Device
    title: str
    source: str = ""

    @property
    def here(self) -> bool:
        """Whether it is this machine's own."""
        return not self.source


_CAPABILITIES = {
    "sm50": "Maxwell: GTX 750 Ti, M60's first half",
    "sm52": "Maxwell: GTX 900, Tesla M40 and M60",
    "sm60": "Pascal: Tesla P100",
    "sm61": "Pascal: GTX 1000, Tesla P4 and P40",
    "sm70": "Volta: V100, Titan V",
    "sm72": "Volta: Jetson AGX Xavier",
    "sm75": "Turing: T4, RTX 2000",
    "sm80": "Ampere: A100, A30",
    "sm86": "Ampere: A10, A40, RTX 3000",
    "sm87": "Ampere: Jetson AGX Orin",
    "sm89": "Ada: L4, L40, RTX 4000",
    "sm90": "Hopper: H100, H200, GH200",
    "sm100": "Blackwell: B200, GB200",
    "sm103": "Blackwell: B300, GB300",
    "sm110": "Blackwell: Jetson AGX Thor",
    "sm120": "Blackwell: RTX 5000, RTX PRO 6000",
    "sm121": "Blackwell: GB10, DGX Spark",
}
_TARGETS = {
    "gfx900": "Vega: MI25",
    "gfx906": "Vega: MI50, MI60, Radeon VII",
    "gfx908": "CDNA: MI100",
    "gfx90a": "CDNA 2: MI210, MI250",
    "gfx942": "CDNA 3: MI300A, MI300X, MI325X",
    "gfx950": "CDNA 4: MI350X, MI355X",
    "gfx1030": "RDNA 2: RX 6800, RX 6900, W6800",
    "gfx1100": "RDNA 3: RX 7900, W7900",
    "gfx1101": "RDNA 3: RX 7700, RX 7800, W7700",
    "gfx1102": "RDNA 3: RX 7600",
    "gfx1151": "RDNA 3.5: Ryzen AI Max",
    "gfx1200": "RDNA 4: RX 9060",
    "gfx1201": "RDNA 4: RX 9070",
}
_AVX2 = ("sse4_2", "avx", "avx2", "fma", "f16c", "bmi2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_NEON = ("asimd", "fp")
#: By name: what it is, the features by Linux's names, the source.
_PROCESSORS = {
    "cpu:baseline": ("x86-64 with nothing beyond SSE2", ("sse2",), _X86),
    "cpu:avx2": ("x86-64 with AVX2 and FMA: Haswell, Zen and newer", _AVX2, _X86),
    "cpu:avx512": ("x86-64 with AVX-512: Skylake-SP, Ice Lake and newer", _AVX512, _X86),
    "cpu:avx512-bf16": (
        "x86-64 with AVX-512 and its BF16: Cooper Lake, Zen 4 and newer",
        (*_AVX512, "avx512_vnni", "avx512_bf16"),
        _X86,
    ),
    "cpu:amx": (
        "x86-64 with AMX: Sapphire Rapids and newer",
        (*_AVX512, "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"),
        _X86,
    ),
    "cpu:neon": ("AArch64 with NEON: every one", _NEON, _ARM),
    "cpu:neon-bf16": (
        "AArch64 with NEON and BF16: Graviton 3, Apple M2 and newer",
        (*_NEON, "asimdhp", "asimddp", "bf16"),
        _ARM,
    ),
    "cpu:sve": (
        "AArch64 with SVE: Graviton 3, A64FX, Grace",
        (*_NEON, "asimdhp", "asimddp", "sve"),
        _ARM,
    ),
}
_OTHERS = {
    "mps": NamedDevice("mps", Device("mps", 0), "an Apple GPU", "Apple, Metal Feature Set Tables"),
    "xpu": NamedDevice("xpu", Device("xpu", 0), "an Intel GPU", "Intel, oneAPI device list"),
    "meta": NamedDevice(
        "meta", Device("meta", 0), "tensors without values", "PyTorch, the meta device"
    ),
}
HERE = {"cpu": "this machine's processors", "cuda": "this machine's first CUDA device"}


def _capability(name: str) -> str:
    """Return "12.0" for "sm120"."""
    digits = name.removeprefix("sm")
    return f"{digits[:-1]}.{digits[-1]}"


def _rows() -> dict[str, NamedDevice]:
    rows = {
        name: NamedDevice(name, Device("cuda", 0, capability=_capability(name)), title, _CUDA)
        for name, title in _CAPABILITIES.items()
    }
    for name, title in _TARGETS.items():
        rows[name] = NamedDevice(name, Device("rocm", 0, capability=name), title, _GFX)
    for name, (title, features, source) in _PROCESSORS.items():
        rows[name] = NamedDevice(name, Device("cpu", 0, features=features), title, source)
    return {**rows, **_OTHERS}


NAMED = _rows()
"""Every device that can be asked about without being here."""

NAMES = (*HERE, *NAMED)
"""Every name that `device` knows."""


def check_name(name: str) -> None:
    """Raise UnknownName, with the nearest name, for a device that nothing is known of."""
    if name not in HERE and name not in NAMED:
        raise UnknownName("device", name, NAMES, "backends sdpa list --devices")


def device(name: str) -> NamedDevice:
    """Return a device by its name.

    Raises UnknownName as `check_name` does, and BadInput for "cuda" where this machine has no such device.
    """
    check_name(name)
    if name in NAMED:
        return NAMED[name]
    return NamedDevice(name, Device("cpu", 0) if name == "cpu" else _cuda_here(), HERE[name])


def _cuda_here() -> Device:
    """Return the first CUDA device that the driver tells; it is asked in a child process."""
    from mlbackends.host.host import Host
    from mlbackends.model.records import Presence
    from mlbackends.survey import survey

    report = survey(("cuda_driver",), Host("/"), Presence.LOADABLE, timeout=5.0)
    probe = report.probes["cuda_driver"]
    found = next((each for each in probe.devices if each.capability), None)
    if found is None:
        because = f": {probe.reasons[0].message}" if probe.reasons else ""
        hint = "a device that is not here is asked about by its name, such as --device sm90"
        raise BadInput(f"this machine has no CUDA device{because}", hint)
    return found
