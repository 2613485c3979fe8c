"""Whether a package's code runs on a chip: the GPU code in its files, and the instruction sets that it needs.

A package fails only where none of its GPU code fits: libraries such as cuBLASLt have modules for one chip
each. Which GPUs are present is read from the driver's and the kernel's files; of a GPU that no file or table
names nothing is stated. What wheels need of a CPU is a table, checked under an emulated CPU; what the loader
refuses is read from the files. Sources: CUDA C++ Programming Guide, "PTX compatibility"; PTX ISA, "Release
notes"; ELF x86-64-ABI psABI, "Program property"; ROCm, rocm-kpack's split wheels.
"""

import posixpath
import struct
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from mlbackends.base.errors import NotALibrary, counted, joined
from mlbackends.base.mounts import NotAnswering
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.version import __version__
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.cpu.features import x86_64_level
from mlbackends.host.cpu.floors import cpu_floors, unmet_floor
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import (
    Distribution,
    distribution,
    distributions,
    listed_files,
    metadata,
    record_bytes,
)
from mlbackends.libraries import amd
from mlbackends.libraries.cuda.driver import cuda_of_driver, driver_release
from mlbackends.libraries.device_names import device_of_product
from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.gpu_code import GpuCode, Target, chip_table, gpu_code
from mlbackends.loading.imports import shared_objects
from mlbackends.model.loading import MATRIX_SCHEMA, ChipMatrix, ChipRow, Fault, TargetMachine


class ChipFit(Struct, frozen=True):
    """How a package's GPU code fits a chip.

    fit: code, ptx (translated at first use), part, none, unknown; "" for a package without GPU code.
    lacking: the files without code for it. version: of the PTX that is translated.
    """

    fit: str
    targets: tuple[Target, ...] = ()
    lacking: tuple[str, ...] = ()
    version: str = ""


def code_for(
    host: Host, dist: Distribution, targets: Sequence[TargetMachine] = ()
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Return why a package's code does not run on some machines, and notes on where it does.

    targets: this machine where there are none. Of this machine's GPUs, one that the code fits is enough.
    """
    here = TargetMachine("", "this machine's CPU", features=tuple(sorted(cpu_flags(host))))
    faults = [fault for target in targets or [here] for fault in _processor_faults(host, dist, target)]
    chips = [target for target in targets if target.chip] if targets else gpus(host)
    if not targets and chips:
        vendors = {code.vendor for code in package_code(host, dist).values()} or {"nvidia"}
        chips = [target for target in chips if target.vendor in vendors]
    found = [list(_on_chip(host, dist, target)) for target in chips]
    of_chips = [[each for each in answer if isinstance(each, Fault)] for answer in found]
    notes = [each for answer in found for each in answer if isinstance(each, str)]
    if targets or all(of_chips):
        faults += [fault for answer in of_chips for fault in answer]
    else:
        notes += [fault.message for answer in of_chips for fault in answer]
    return tuple(faults), tuple(dict.fromkeys(notes))


# ---- GPUs -----------------------------------------------------------------------------------------


@once_per_host
def gpus(host: Host) -> tuple[TargetMachine, ...]:
    """Return each kind of GPU that this machine's drivers serve; of an unknown one without its chip."""
    found: dict[str, TargetMachine] = {}
    compatible = host.read("/proc/device-tree/compatible", 4096)
    for system, capabilities in chip_table()["tegra"].items():
        if f"nvidia,{system}" in compatible:
            found[capabilities[0]] = TargetMachine(system, f"the GPU of {system}", capabilities[0])
    folder, release = "/proc/driver/nvidia/gpus", driver_release(host)
    for address in host.listdir(folder):
        model = _MODEL.search(host.read(f"{folder}/{address}/information", 4096))
        name = model[1].strip() if model else "the NVIDIA GPU"
        row = device_of_product(name)
        chip = row.device.capability if row and row.device.kind == "cuda" else ""
        found[chip or name] = TargetMachine(name, name, chip, driver=release)
    for gpu in amd.gpus(host):
        if gpu.node is not None:
            name = gpu.target or "the AMD GPU"
            found[name] = TargetMachine(name, name, gpu.target, vendor="amd")
    return tuple(found.values())


def code_name(chip: str) -> str:
    """Return what compilers call a chip: "sm_121" for 12.1, "gfx1151"."""
    return chip if chip.startswith("gfx") else f"sm_{chip.replace('.', '')}"


def chip_fit(host: Host, dist: Distribution, chip: str) -> ChipFit:
    """Return how the GPU code of an installed package fits a chip."""
    codes = package_code(host, dist)
    fits = {path: _fit(code, chip) for path, code in codes.items()}
    if set(fits.values()) == {"none"}:
        # Before that is stated, every byte is searched: some libraries keep code elsewhere.
        codes = package_code(host, dist, True)
        fits = {path: _fit(code, chip) for path, code in codes.items()}
    vendor = "amd" if chip.startswith("gfx") else "nvidia"
    own = {path: fit for path, fit in fits.items() if codes[path].vendor == vendor}
    states = {*(own or fits).values()}
    if states <= {"none"}:
        is_unread = any(code.unread for code in codes.values())
        fit = "unknown" if is_unread else "none" if states else ""
    else:
        fit = "part" if "none" in states else "code" if "code" in states else "ptx"
    targets = sorted(
        {target for code in codes.values() for target in code.targets},
        key=lambda target: (target.kind != "sm", target.number, target.name),
    )
    versions = [t.version for t in targets if t.kind == "ptx" and t.version and t.runs_on(chip)]
    lacking = tuple(path for path, word in own.items() if word == "none")
    return ChipFit(fit, tuple(targets), lacking, min(versions, key=dotted_numbers, default=""))


def chip_matrix(host: Host, dists: Iterable[Distribution], chips: Sequence[str]) -> ChipMatrix:
    """Return how the GPU code of packages fits chips; packages without any are left out."""
    rows = [
        ChipRow(dist.name, dist.version, {chip: chip_fit(host, dist, chip).fit for chip in chips})
        for dist in dists
        if package_code(host, dist)
    ]
    python = f"{host.python.get('executable', '')} ({host.python.get('version', '')})"
    return ChipMatrix(MATRIX_SCHEMA, f"backends {__version__}", python, tuple(chips), tuple(rows))


def _fit(code: GpuCode, chip: str) -> str:
    """Return how the code of one file fits: code, ptx or none."""
    kinds = {target.kind for target in code.targets if target.runs_on(chip)}
    return "code" if kinds - {"ptx"} else "ptx" if kinds else "none"


@once_per_host
def package_code(host: Host, dist: Distribution, whole: bool = False) -> dict[str, GpuCode]:
    """Return the GPU code of a distribution by file, or by folder for files that are named after chips."""
    paths = dict.fromkeys(shared_objects(host, dist))
    named: dict[str, set[Target]] = {}
    for name in listed_files(record_bytes(host, dist), _CODE_FILES):
        path = posixpath.normpath(f"{dist.folder}/{name}")
        folder, _, base = path.rpartition("/")
        if match := _NAMED_AFTER.search(base) or _NAMED_AFTER.search(folder):
            named.setdefault(folder.partition("/amd-gfx")[0], set()).add(Target("gfx", match[0]))
        else:
            paths[path] = None
    if wheels := _DEVICE_WHEEL.findall(metadata(host, dist)):
        installed = {Target("gfx", chip) for name, chip in wheels if name.lower() in distributions(host)}
        named["device wheels"] = installed or {Target("gfx", "none")}
    codes = {folder: GpuCode(tuple(sorted(found))) for folder, found in named.items()}
    for path in {host.realpath(path): path for path in paths}.values():
        try:
            code = gpu_code(host, path, whole)
        except (NotALibrary, OSError, NotAnswering):
            continue
        if code.targets or code.unread:
            codes[path] = code
    return codes


def _on_chip(host: Host, dist: Distribution, target: TargetMachine) -> Iterator[Fault | str]:
    """Yield faults and notes about a package's code on a machine with a GPU."""
    if not target.chip:
        if package_code(host, dist):
            yield f"whether it has code for {target.title} is not known: name the GPU with --for"
        return
    yield from _assembler_faults(host, dist, target)
    name, fit = code_name(target.chip), chip_fit(host, dist, target.chip)
    if fit.fit == "none":
        yield _no_code(host, dist, target, fit)
    elif fit.fit == "unknown":
        yield f"whether it has code for {name} cannot be determined: its GPU code is not read"
    elif fit.fit == "ptx":
        yield _translated(name, fit.version, target.driver)
    elif fit.fit == "part":
        files = [path.removeprefix(f"{dist.folder}/") for path in fit.lacking]
        more = [counted(len(files) - 3, "other file")] if len(files) > 3 else []
        verb = "has" if len(files) == 1 else "have"
        yield f"{joined([*files[:3], *more])} {verb} no code for {name}"


def _no_code(host: Host, dist: Distribution, target: TargetMachine, fit: ChipFit) -> Fault:
    name = code_name(target.chip)
    has = [f"PTX for {t.name}" if t.kind == "ptx" else t.name for t in fit.targets if t.name != "none"]
    wheels = [chip for _, chip in _DEVICE_WHEEL.findall(metadata(host, dist))]
    of_chip = f"the chip is {name}" + (f" ({target.name})" if target.name not in (name, target.chip) else "")
    command = f"pip install '{dist.name}[device-{name}]=={dist.version}'" if name in wheels else ""
    return Fault(
        "no-code-for-chip",
        name,
        "no kernel image is available for execution on the device: the package has"
        f" {joined(list(dict.fromkeys(has)) or ['no device wheel'])}; {of_chip}",
        path=fit.lacking[:1],
        hint="" if command else f"install a build of {dist.name} that has code for {name}",
        command=command,
    )


def _translated(name: str, version: str, driver: str) -> str:
    text = f"for {name} there is PTX only, which the driver compiles at the first use"
    cuda = cuda_of_driver(driver) if driver else ""
    major, _, minor = cuda.partition(".")
    newest = chip_table()["ptx"].get(cuda) or (f"{int(major) - 4}.{minor}" if cuda else "")
    if version and newest and dotted_numbers(version) > dotted_numbers(newest):
        return f"{text}: it is PTX {version}, and driver {driver} (CUDA {cuda}) compiles PTX up to {newest}"
    return f"{text} (PTX {version})" if version else text


def _assembler_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterator[Fault]:
    """Yield a fault if Triton's own assembler does not know a chip."""
    if "triton" not in dist.name or target.vendor != "nvidia" or host.env("TRITON_PTXAS_PATH"):
        return
    names = {posixpath.basename(name): name for name in listed_files(record_bytes(host, dist), _ASSEMBLERS)}
    of_blackwell = "ptxas-blackwell" if float(target.chip) >= _FIRST_BLACKWELL else ""
    path = posixpath.normpath(f"{dist.folder}/{names.get(of_blackwell) or names.get('ptxas', '')}")
    known = {number.decode() for number in _SM_NAME.findall(host.read_bytes(path, _ASSEMBLER_BYTES))}
    name = code_name(target.chip)
    if known and name.removeprefix("sm_") not in known:
        # Triton 3.1 asks for the instructions of one chip on Hopper alone, 3.5 on every newer one.
        compiler = host.read(f"{dist.folder}/triton/backends/nvidia/compiler.py")
        has_suffix = "if capability >= 90" in compiler and float(target.chip) >= _FIRST_WITH_SUFFIX
        wanted = f"{name}a" if has_suffix else name
        yield Fault(
            "no-code-for-chip",
            wanted,
            f"ptxas fatal   : Value '{wanted}' is not defined for option 'gpu-name'",
            path=(path,),
            cause=f"its ptxas knows chips up to sm_{max(known, key=int)}",
            hint="set TRITON_PTXAS_PATH to the ptxas of a newer CUDA, or install a newer triton",
        )


# ---- processors -----------------------------------------------------------------------------------


def _processor_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterator[Fault]:
    """Yield why a package's files are not for a machine's processor."""
    features = frozenset(target.features)
    level = x86_64_level(features)
    if level:
        yield from _floor_faults(host, dist, target)
    # No known wheel is marked for more than level 3.
    ranks = _LEVELS.index(level) + 1 if level in _LEVELS[:2] else len(_LEVELS)
    for path in shared_objects(host, dist) if target.machine or ranks < len(_LEVELS) else ():
        try:
            machine, needs = host.extracted(path, processor_needed, tuple[str, int])
        except (NotALibrary, OSError, NotAnswering):
            continue
        if target.machine and machine != target.machine:
            words = f"{path}: cannot open shared object file: No such file or directory"
            cause = f"the file is for {machine}, not for {target.machine}"
            yield Fault("wrong-architecture", path, words, (path,), cause)
            return
        if needs >> ranks:
            wanted = _LEVELS[min(needs.bit_length(), len(_LEVELS)) - 1]
            message = f"{path}: CPU ISA level is lower than required"
            yield Fault("cpu-too-old", wanted, message, (path,), f"{target.title or target.name} is {level}")
            return


def _floor_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterator[Fault]:
    """Yield a fault if the wheel of a package, or of one that it imports, needs more than a CPU has."""
    imported = {name for row in cpu_floors() if dist.name in row.importers for name in row.distributions}
    for name in (dist.name, *sorted(imported)):
        owner = distribution(host, name)
        # What a user or a distribution compiles may need less or more.
        if not owner or "manylinux" not in host.read(f"{owner.info}/WHEEL", 1 << 16):
            continue
        if unmet := unmet_floor(name, owner.version, frozenset(target.features), distributions(host)):
            row, missing = unmet
            wheels = "its wheels" if name == dist.name else f"the wheels of {name}"
            needs, lacks = joined(row.needs), joined([word.upper() for word in missing])
            instead = row.instead.format(version=owner.version)
            yield Fault(
                "no-code-for-chip" if row.loads else "cpu-too-old",
                needs,
                f"{row.message.rstrip('.')}: it needs {needs}",
                cause=f"{wheels} are compiled for {needs}; {target.title or target.name} lacks {lacks}",
                hint=f"install {instead}" if instead else f"build {name} from source for this CPU",
            )
            return


def processor_needed(path: str) -> tuple[str, int]:
    """Return the architecture of an ELF file, and the x86 levels that it is marked to need, as bits.

    glibc 2.33 and newer refuse a file whose level the CPU lacks.
    """
    with ElfImage(path) as image:
        for kind, offset, _, size in image.segments:
            note = image.exactly(offset, min(size, _NOTE_BYTES)) if kind == _PT_GNU_PROPERTY else b""
            at = 16
            while note[4:16].endswith(b"\5\0\0\0GNU\0") and at + 12 <= len(note):
                name, length, value = struct.unpack_from(image.order + "III", note, at)
                if name == _ISA_1_NEEDED:
                    return image.machine, int(value)
                at += 8 + length + -length % (image.bits // 8)
        return image.machine, 0


_MODEL = pattern(r"(?m)^Model:[ \t]+(.+)$")
_CODE_FILES = bytes_pattern(
    rb'(?:\.(?:cubin|hsaco|co|fatbin|dat)|/aotriton\.images/amd-gfx[^,\n]*)(?=[,"])[^\n]*'
)
_NAMED_AFTER = pattern(r"(?<![0-9a-z])gfx[0-9]{1,2}[0-9a-fx]{2}(?![0-9a-z])")
_DEVICE_WHEEL = pattern(r"(?m)^Requires-Dist: ([\w-]+-device-(gfx[0-9]{1,2}[0-9a-f]{2}))(?![0-9a-z_])")
_ASSEMBLERS = bytes_pattern(rb'/bin/ptxas(?:-blackwell)?(?=[,"])[^\n]*')
_SM_NAME = bytes_pattern(rb"\bsm_(\d{2,3})\0")
_FIRST_BLACKWELL, _FIRST_WITH_SUFFIX = 10.0, 9.0
_LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_PT_GNU_PROPERTY, _ISA_1_NEEDED = 0x6474E553, 0xC0008002
_ASSEMBLER_BYTES, _NOTE_BYTES = 1 << 28, 1 << 16
