"""Whether a package's code runs on a chip: the GPU code in its files, and the instruction sets that it needs.

A package fails only where none of its GPU code fits: libraries such as cuBLASLt have modules for one chip
each. Which GPUs are present is read from the driver's and the kernel's files; of a GPU that no file or table
names nothing is stated. What wheels need of a CPU is a table, checked under an emulated CPU; what the loader
refuses is read from the files. Sources: CUDA C++ Programming Guide, "PTX compatibility"; PTX ISA, "Release
notes"; ELF x86-64-ABI psABI, "Program property"; ROCm, rocm-kpack's split wheels.
"""

import posixpath
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.base.errors import NotALibrary, counted, joined
from mlbackends.base.mounts import NotAnswering
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.base.version import __version__
from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.cpu.features import level_features, x86_64_level
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.pci import of_vendor, product_name
from mlbackends.host.python.packages import (
    Distribution,
    distribution,
    distributions,
    listed_files,
    metadata,
    record_bytes,
)
from mlbackends.host.python.requirements import satisfies
from mlbackends.libraries import amd
from mlbackends.libraries.cuda.driver import cuda_of_driver, driver_release
from mlbackends.libraries.device_names import device_of_product
from mlbackends.libraries.elf import ElfImage, FileImage
from mlbackends.loading.gpu_code import GpuCode, Target, gpu_code
from mlbackends.loading.imports import shared_objects
from mlbackends.model.loading import MATRIX_SCHEMA, ChipMatrix, ChipRow, Fault, TargetMachine


class ChipFit(Struct, frozen=True):
    """How a package's GPU code fits a chip.

    fit: code, ptx (translated at first use), part, none, unknown; "" for a package without GPU code.
    lacking: the files without code for it, partly: those with little.
    version: of the PTX that is translated.
    """

    fit: str
    targets: tuple[Target, ...] = ()
    lacking: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()
    version: str = ""


def code_for(
    host: Host, dist: Distribution, targets: Sequence[TargetMachine] = ()
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """Return why a package's code does not run on some machines, and notes on where it does.

    targets: this machine where there are none. Of this machine's GPUs, one that the code fits is enough.
    """
    faults: list[Fault] = []
    notes: list[str] = []
    for target in targets or (_processor(host),):
        faults += [*_cpu_faults(host, dist, target), *_machine_faults(host, dist, target)]
    chips = [target for target in targets if target.chip] if targets else gpus(host)
    vendors = {code.vendor for code in package_code(host, dist).values()} if chips else set()
    lacking: dict[TargetMachine, list[Fault]] = {}
    for target in chips:
        lacking[target] = [*_assembler_faults(host, dist, target)]
        if not vendors or (not targets and target.vendor not in vendors):
            continue
        if not target.chip:
            notes.append(f"whether it has code for {target.title} is not known: name the GPU with --for")
            continue
        name, fit = code_name(target.chip), chip_fit(host, dist, target.chip)
        if fit.fit == "none":
            lacking[target].append(_no_code(host, dist, target, fit))
        elif fit.fit == "unknown":
            notes.append(f"whether it has code for {name} cannot be determined: its GPU code is not read")
        elif fit.fit == "ptx":
            notes.append(_translated(name, fit, target.driver))
        for paths, words in ((fit.lacking, "no code"), (fit.partly, "little code")):
            if paths and fit.fit == "part":
                files = [path.removeprefix(f"{dist.folder}/") for path in paths]
                more = [counted(len(files) - 3, "other file")] if len(files) > 3 else []
                verb = "has" if len(files) == 1 else "have"
                notes.append(f"{joined([*files[:3], *more])} {verb} {words} for {name}")
    judged = [
        found for target, found in lacking.items() if targets or target.vendor in (vendors or {"nvidia"})
    ]
    of_chips = [fault for found in judged for fault in found]
    if targets or all(judged):
        faults += of_chips
    else:
        notes += [fault.message for fault in of_chips]
    return tuple(faults), tuple(dict.fromkeys(notes))


# ---- GPUs -----------------------------------------------------------------------------------------


@once_per_host
def gpus(host: Host) -> tuple[TargetMachine, ...]:
    """Return each kind of GPU that this machine's drivers serve; of an unknown one without its chip."""
    found: dict[str, TargetMachine] = {}
    release = driver_release(host)
    compatible = host.read("/proc/device-tree/compatible", 4096)
    for system, capability in _TEGRA.items():
        if f"nvidia,{system}" in compatible:
            found[capability] = TargetMachine(system, f"the GPU of {system}", capability)
    folder = "/proc/driver/nvidia/gpus"
    cards = {device.address: device for device in of_vendor(host, "10de")} if host.exists(folder) else {}
    for address in host.listdir(folder):
        model = _MODEL.search(host.read(f"{folder}/{address}/information", 4096))
        name = model[1].strip() if model else ""
        row = device_of_product(name)
        if row is None and (card := cards.get(address.lower())):
            bracketed = re.search(r"\[(.+)\]", product_name(host, card))
            row = device_of_product(bracketed[1]) if bracketed else None
        chip = row.device.capability if row and row.device.kind == "cuda" else ""
        name = name or "the NVIDIA GPU"
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
    if fits and set(fits.values()) <= {"none"}:
        # Before that is stated, every byte of data is searched: some libraries keep code elsewhere.
        codes = package_code(host, dist, True)
        fits = {path: _fit(code, chip) for path, code in codes.items()}
    everything = {target for code in codes.values() for target in code.targets}
    targets = tuple(sorted(everything, key=lambda target: (target.kind != "sm", target.number, target.name)))
    vendor = "amd" if chip.startswith("gfx") else "nvidia"
    own = [path for path in fits if codes[path].vendor == vendor]
    states = {fits[path] for path in own} or set(fits.values())
    lacking, partly = (tuple(path for path in own if fits[path] == word) for word in ("none", "part"))
    versions = [t.version for t in targets if t.kind == "ptx" and t.version and t.runs_on(chip)]
    version = min(versions, key=dotted_numbers, default="")
    if states <= {"none"}:
        is_unread = any(code.unread for code in codes.values())
        fit = "unknown" if is_unread else "none" if states else ""
    elif states & {"none", "part"}:
        fit = "part"
    else:
        fit = "code" if "code" in states else "ptx"
    return ChipFit(fit, targets, lacking, partly, version)


def chip_matrix(host: Host, dists: Iterable[Distribution], chips: Sequence[str]) -> ChipMatrix:
    """Return how the GPU code of packages fits chips; packages without any are left out."""
    rows = []
    for dist in dists:
        if package_code(host, dist):
            fits = {chip: chip_fit(host, dist, chip).fit for chip in chips}
            rows.append(ChipRow(dist.name, dist.version, fits))
    python = f"{host.python.get('executable', '')} ({host.python.get('version', '')})"
    return ChipMatrix(MATRIX_SCHEMA, f"backends {__version__}", python, tuple(chips), tuple(rows))


def _fit(code: GpuCode, chip: str) -> str:
    """Return how the code of one file fits: code, ptx, part or none.

    A file has a part where nearly all of its modules, with the same targets, lack what others have; where
    there are modules of many kinds, each is written for one chip.
    """
    fitting: dict[Any, str] = {}
    counts: dict[Any, int] = {}
    for module in code.modules:
        counts[module] = counts.get(module, 0) + 1
        if module not in fitting:
            kinds = {kind for kind, *rest in module if Target(kind, *rest).runs_on(chip)}
            fitting[module] = "code" if kinds - {"ptx"} else "ptx" if kinds else "none"
    found = set(fitting.values())
    if found <= {"none"}:
        return "none"
    usual = max(counts, key=lambda module: counts[module])
    if fitting[usual] == "none" and counts[usual] * 10 > 9 * len(code.modules):
        return "part"
    return "code" if "code" in found else "ptx"


@once_per_host
def package_code(host: Host, dist: Distribution, whole: bool = False) -> dict[str, GpuCode]:
    """Return the GPU code of a distribution by file, or by folder for files that are named after chips."""
    record = record_bytes(host, dist)
    paths = dict.fromkeys(shared_objects(host, dist))
    named: dict[str, set[str]] = {}
    for name in listed_files(record, _CODE_FILES):
        path = posixpath.normpath(f"{dist.folder}/{name}")
        folder, _, base = path.rpartition("/")
        if match := _NAMED_AFTER.search(base) or _NAMED_AFTER.search(folder):
            features = re.match(r"(?:-\w+[+-])*", base[match.end() :] if match.string == base else "")
            words = (
                features[0].replace("-sramecc", ":sramecc").replace("-xnack", ":xnack") if features else ""
            )
            named.setdefault(folder.partition("/amd-gfx")[0], set()).add(match[0] + words)
        else:
            paths[path] = None
    codes = {
        folder: GpuCode((tuple(("gfx", name, "") for name in sorted(names)),))
        for folder, names in named.items()
    }
    if wheels := _DEVICE_WHEEL.findall(metadata(host, dist)):
        installed = [("gfx", chip, "") for name, chip in wheels if name.lower() in distributions(host)]
        codes["device wheels"] = GpuCode((tuple(installed) or (("gfx", "none", ""),),))
    seen = set()
    for path in paths:
        real = host.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        try:
            code = gpu_code(host, real, whole)
        except (NotALibrary, OSError, NotAnswering):
            continue
        if code.modules or code.unread:
            codes[path] = code
    return codes


def _no_code(host: Host, dist: Distribution, target: TargetMachine, fit: ChipFit) -> Fault:
    name = code_name(target.chip)
    listed = [t.name for t in fit.targets if t.kind != "ptx" and t.name != "none"]
    ptx = [f"PTX for {t.name}" for t in fit.targets if t.kind == "ptx"]
    wheels = [chip for _, chip in _DEVICE_WHEEL.findall(metadata(host, dist))]
    of_chip = f"the chip is {name}" + (f" ({target.name})" if target.name not in (name, target.chip) else "")
    has = joined(list(dict.fromkeys(listed + ptx)) or ["no device wheel"])
    command = f"pip install '{dist.name}[device-{name}]=={dist.version}'" if name in wheels else ""
    return Fault(
        "no-code-for-chip",
        name,
        f"no kernel image is available for execution on the device: the package has {has}; {of_chip}",
        path=fit.lacking[:1],
        hint="" if command else f"install a build of {dist.name} that has code for {name}",
        command=command,
    )


def _translated(name: str, fit: ChipFit, driver: str) -> str:
    cuda = cuda_of_driver(driver) if driver else ""
    newest = _PTX_OF_CUDA.get(cuda) or (f"{int(cuda.split('.')[0]) - 4}.{cuda.split('.')[1]}" if cuda else "")
    text = f"for {name} there is PTX only, which the driver compiles at the first use"
    if newest and fit.version and dotted_numbers(fit.version) > dotted_numbers(newest):
        return (
            f"{text}: it is PTX {fit.version}, and driver {driver} (CUDA {cuda}) compiles PTX up to {newest}"
        )
    return f"{text} (PTX {fit.version})" if fit.version else text


def _assembler_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterable[Fault]:
    """Yield a fault if Triton's own assembler does not know a chip."""
    if "triton" not in dist.name or "." not in target.chip or host.env("TRITON_PTXAS_PATH"):
        return
    names = listed_files(record_bytes(host, dist), _ASSEMBLERS)
    files = {posixpath.basename(name): posixpath.normpath(f"{dist.folder}/{name}") for name in names}
    is_new = float(target.chip) >= _FIRST_BLACKWELL
    path = files.get("ptxas-blackwell", "") if is_new else ""
    path = path or files.get("ptxas", "")
    number = code_name(target.chip)
    try:
        known = host.extracted(path, assembler_targets, list[str]) if path else []
    except (NotALibrary, OSError, NotAnswering):
        return
    if not known or number in known:
        return
    compiler = host.read(f"{dist.folder}/triton/backends/nvidia/compiler.py")
    is_older = "if capability == 90" in compiler and "if capability >= 90" not in compiler
    has_suffix = float(target.chip) >= _FIRST_WITH_SUFFIX and not (is_older and number != "sm_90")
    wanted = f"{number}a" if has_suffix else number
    yield Fault(
        "no-code-for-chip",
        wanted,
        f"ptxas fatal   : Value '{wanted}' is not defined for option 'gpu-name'",
        path=(path,),
        cause=f"its ptxas knows chips up to {max(known, key=lambda name: int(name[3:]))}",
        hint="set TRITON_PTXAS_PATH to the ptxas of a newer CUDA, or install a newer triton",
    )


def assembler_targets(path: str) -> list[str]:
    """Return the chips that a ptxas assembles for, from the names in it. Raises NotALibrary and OSError."""
    found: set[str] = set()
    with FileImage(path) as image:
        for at in range(0, image.size, _PIECE_BYTES):
            piece = image.exactly(at, min(_PIECE_BYTES + 16, image.size - at))
            found.update(f"sm_{number.decode()}" for number in _SM_NAME.findall(piece))
    return sorted(found)


# ---- CPUs -----------------------------------------------------------------------------------------


class CpuFloor(Struct, frozen=True, forbid_unknown_fields=True):
    """What wheels of some versions need of an x86-64 CPU.

    needs: names of instruction sets, or of an x86-64 level. message: what is printed without them. loads:
    whether the import still works. importers: packages that import it in any case, unless another package
    is installed. source: where it was read or tried.
    """

    distributions: tuple[str, ...]
    needs: tuple[str, ...]
    source: str
    versions: str = ""
    message: str = "Illegal instruction (core dumped)"
    loads: bool = False
    importers: tuple[str, ...] = ()
    unless: str = ""
    hint: str = ""


@cache
def cpu_floors() -> tuple[CpuFloor, ...]:
    """Return the rows of cpu_floors.toml."""
    return msgspec.convert(table("loading/cpu_floors.toml")["package"], tuple[CpuFloor, ...])


def _processor(host: Host) -> TargetMachine:
    return TargetMachine("", "this machine's CPU", features=tuple(sorted(cpu_flags(host))))


def _cpu_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterable[Fault]:
    features = frozenset(target.features)
    if not features or "lm" not in features:
        return
    for row in cpu_floors():
        names = {dist.name, *(row.distributions if dist.name in row.importers else ())}
        for name in sorted(names.intersection(row.distributions)):
            owner = distribution(host, name)
            is_fitting = owner and (not row.versions or satisfies(owner.version, row.versions))
            if not owner or not is_fitting or row.unless in distributions(host):
                continue
            needed = {word for need in row.needs for word in level_features(need) or (need.lower(),)}
            missing = [word.upper() for word in sorted(needed - features)]
            # What a user or a distribution compiles may need less or more.
            if missing and "manylinux" in host.read(f"{owner.info}/WHEEL", 1 << 16):
                wheels = f"the wheels of {name}" if name != dist.name else "its wheels"
                is_named = any(word in row.message for word in row.needs)
                yield Fault(
                    "no-code-for-chip" if row.loads else "cpu-too-old",
                    joined(row.needs),
                    row.message if is_named else f"{row.message}: it needs {joined(row.needs)}",
                    cause=f"{wheels} are compiled for {joined(row.needs)};"
                    f" {target.title or target.name} lacks {joined(missing)}",
                    hint=row.hint or f"build {name} from source on a machine of this kind",
                )
                return
    level = x86_64_level(features)
    if level not in _LEVEL_BITS or level >= "x86-64-v3":
        return  # no known wheel is marked for more
    for path in shared_objects(host, dist):
        try:
            needs = host.extracted(path, isa_needed, int)
        except (NotALibrary, OSError, NotAnswering):
            continue
        if needs >> (_LEVEL_BITS.index(level) + 1):
            wanted = _LEVEL_BITS[min(needs.bit_length(), len(_LEVEL_BITS)) - 1]
            message = f"{path}: CPU ISA level is lower than required"
            yield Fault("cpu-too-old", wanted, message, (path,), f"{target.title or target.name} is {level}")
            return


def isa_needed(path: str) -> int:
    """Return the x86 levels that an ELF file is marked to need, as bits; glibc 2.33 and newer refuse it."""
    with ElfImage(path) as image:
        for kind, offset, _, size in image.segments:
            if kind != _PT_GNU_PROPERTY or size > _NOTE_BYTES:
                continue
            note = image.exactly(offset, size)
            at = 16
            while note[4:16].endswith(b"\5\0\0\0GNU\0") and at + 12 <= len(note):
                name, length, value = struct.unpack_from(image.order + "III", note, at)
                if name == _ISA_1_NEEDED:
                    return int(value)
                at += 8 + length + -length % (image.bits // 8)
    return 0


def _machine_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterable[Fault]:
    """Yield a fault if a package's files are for another processor architecture than a target's."""
    for path in shared_objects(host, dist) if target.machine else ():
        try:
            with ElfImage(host.real(host.realpath(path))) as image:
                machine = image.machine
        except (NotALibrary, OSError):
            continue
        if machine != target.machine:
            words = f"{path}: cannot open shared object file: No such file or directory"
            cause = f"the file is for {machine}, not for {target.machine}"
            yield Fault("wrong-architecture", path, words, (path,), cause)
        return


#: The GPU of each Tegra by the word for it in the device tree. Source: Linux, arch/arm64/boot/dts/nvidia.
_TEGRA = {"tegra210": "5.3", "tegra186": "6.2", "tegra194": "7.2", "tegra234": "8.7", "tegra264": "11.0"}
_MODEL = pattern(r"(?m)^Model:[ \t]+(.+)$")
_CODE_FILES = bytes_pattern(
    rb'(?:\.(?:cubin|hsaco|co|fatbin|dat)|/aotriton\.images/amd-gfx[^,\n]*)(?=[,"])[^\n]*'
)
_NAMED_AFTER = pattern(r"(?<![0-9a-z])gfx[0-9]{1,2}[0-9a-fx]{2}(?![0-9a-z])")
_DEVICE_WHEEL = pattern(r"(?m)^Requires-Dist: ([\w-]+-device-(gfx[0-9]{1,2}[0-9a-f]{2}))(?![0-9a-z_])")
_ASSEMBLERS = bytes_pattern(rb'/bin/ptxas(?:-blackwell)?(?=[,"])[^\n]*')
_SM_NAME = bytes_pattern(rb"\bsm_(\d{2,3})\0")
_FIRST_BLACKWELL, _FIRST_WITH_SUFFIX = 10.0, 9.0
_PIECE_BYTES = 1 << 20
#: Where the PTX version is not that of CUDA's minor number, 8.0 for 12.0 and 9.0 for 13.0.
_PTX_OF_CUDA = {"12.6": "8.5", "12.7": "8.6", "12.8": "8.7", "12.9": "8.8"}
_LEVEL_BITS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_PT_GNU_PROPERTY, _ISA_1_NEEDED = 0x6474E553, 0xC0008002
_NOTE_BYTES = 1 << 16
