"""Whether a package's code runs on a chip: the GPU code in its files, and the instruction sets that it needs.

A package fails only where none of its GPU code fits: libraries such as cuBLASLt have modules for one chip
each. Which GPUs are present is read from the driver's and the kernel's files; of a GPU that no file or table
names nothing is stated. What wheels need of a CPU is a table, checked under an emulated CPU; what the loader
refuses is read from the files. Sources: CUDA C++ Programming Guide, "PTX compatibility"; ELF x86-64-ABI
psABI, "Program property"; ROCm, rocm-kpack's split wheels.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from mlbackends.base.errors import NotALibrary, counted, joined
from mlbackends.base.mounts import NotAnswering
from mlbackends.base.patterns import bytes_pattern, pattern
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
from mlbackends.libraries.device_names import device_of_product
from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.gpu_code import GpuCode, Target, chip_table, gpu_code
from mlbackends.loading.imports import shared_objects
from mlbackends.model.loading import MATRIX_SCHEMA, ChipMatrix, ChipRow, Fault, TargetMachine

#: Chips of systems that have an ARM processor: Orin, Thor and GB10.
ARM_CHIPS = ("8.7", "11.0", "12.1")


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
    answers = [_on_chip(host, dist, target) for target in chips]
    of_chips = [answer for answer in answers if isinstance(answer, Fault)]
    notes = [answer for answer in answers if isinstance(answer, str) and answer]
    if targets or len(of_chips) == len(answers):
        faults += of_chips
    else:
        notes += [fault.message for fault in of_chips]
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
    folder = "/proc/driver/nvidia/gpus"
    for address in host.listdir(folder):
        model = _MODEL.search(host.read(f"{folder}/{address}/information", 4096))
        name = model[1].strip() if model else "the NVIDIA GPU"
        row = device_of_product(name)
        chip = row.device.capability if row and row.device.kind == "cuda" else ""
        found[chip or name] = TargetMachine(name, name, chip)
    for gpu in amd.gpus(host):
        if gpu.node is not None:
            name = gpu.target or "the AMD GPU"
            found[name] = TargetMachine(name, name, gpu.target, vendor="amd")
    return tuple(found.values())


def code_name(chip: str) -> str:
    """Return what compilers call a chip: "sm_121" for 12.1, "gfx1151"."""
    return chip if chip.startswith("gfx") else f"sm_{chip.replace('.', '')}"


def chip_matrix(host: Host, dists: Iterable[Distribution], chips: Sequence[str]) -> ChipMatrix:
    """Return how the GPU code of packages fits chips; packages without any are left out."""
    rows = [
        ChipRow(dist.name, dist.version, {chip: _fit(host, dist, chip)[0] for chip in chips})
        for dist in dists
        if package_code(host, dist)
    ]
    python = f"{host.python.get('executable', '')} ({host.python.get('version', '')})"
    return ChipMatrix(MATRIX_SCHEMA, f"backends {__version__}", python, tuple(chips), tuple(rows))


def _fit(host: Host, dist: Distribution, chip: str, whole: bool = False) -> tuple[str, list[str]]:
    """Return how a package's GPU code fits a chip, in ChipRow's words, and the files without code for it.

    "" for a package without GPU code.
    """
    codes = package_code(host, dist, whole)
    kinds = {path: {t.kind for t in code.targets if t.runs_on(chip)} for path, code in codes.items()}
    vendor = "amd" if chip.startswith("gfx") else "nvidia"
    lacking = [path for path, code in codes.items() if code.vendor == vendor and not kinds[path]]
    if any(kinds.values()):
        is_machine_code = any(found - {"ptx"} for found in kinds.values())
        return "part" if lacking else "code" if is_machine_code else "ptx", lacking
    if codes and not whole:
        # Before it is stated that nothing fits, every byte is searched: some libraries keep code elsewhere.
        return _fit(host, dist, chip, True)
    is_unread = any(code.unread for code in codes.values())
    return "unknown" if is_unread else "none" if codes else "", lacking


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


def _on_chip(host: Host, dist: Distribution, target: TargetMachine) -> Fault | str:
    """Return a fault or a note about a package's code on a machine with a GPU, "" where all of it fits."""
    if not target.chip:
        unknown = f"whether it has code for {target.title} is not known: name the GPU with --for"
        return unknown if package_code(host, dist) else ""
    if fault := _unknown_to_assembler(host, dist, target):
        return fault
    name, (fit, lacking) = code_name(target.chip), _fit(host, dist, target.chip)
    if fit == "none":
        return _no_code(host, dist, target, lacking)
    if fit == "unknown":
        return f"whether it has code for {name} cannot be determined: its GPU code is not read"
    if fit == "ptx":
        return f"for {name} there is PTX only, which the driver compiles at the first use"
    files = [path.removeprefix(f"{dist.folder}/") for path in lacking]
    more = [counted(len(files) - 3, "other file")] if len(files) > 3 else []
    return f"no code for {name} in {joined([*files[:3], *more])}" if files else ""


def _no_code(host: Host, dist: Distribution, target: TargetMachine, lacking: list[str]) -> Fault:
    name = code_name(target.chip)
    targets = {target for code in package_code(host, dist, True).values() for target in code.targets}
    ordered = sorted(targets, key=lambda target: (target.kind != "sm", target.number, target.name))
    has = [f"PTX for {t.name}" if t.kind == "ptx" else t.name for t in ordered if t.name != "none"]
    of_chip = f"the chip is {name}" + (f" ({target.name})" if target.name not in (name, target.chip) else "")
    has_wheel = name in (chip for _, chip in _DEVICE_WHEEL.findall(metadata(host, dist)))
    words = "no kernel image is available for execution on the device: the package has"
    words += f" {joined(has or ['no device wheel'])}; {of_chip}"
    hint = f"install a build of {dist.name} that has code for {name}"
    command = f"pip install '{dist.name}[device-{name}]=={dist.version}'" if has_wheel else ""
    return Fault("no-code-for-chip", name, words, tuple(lacking[:1]), "", hint, command)


def _unknown_to_assembler(host: Host, dist: Distribution, target: TargetMachine) -> Fault | None:
    """Return a fault if Triton's own assembler does not know a chip."""
    if "triton" not in dist.name or target.vendor != "nvidia" or host.env("TRITON_PTXAS_PATH"):
        return None
    folder, capability = f"{dist.folder}/triton/backends/nvidia", float(target.chip)
    own = f"{folder}/bin/ptxas-blackwell"
    path = own if capability >= 10 and host.exists(own) else f"{folder}/bin/ptxas"
    known = {int(number) for number in _SM_NUMBER.findall(host.read_bytes(path, _ASSEMBLER_BYTES))}
    if not known or round(capability * 10) in known:
        return None
    # Triton 3.1 asks for the instructions of one chip on Hopper alone, 3.5 on every newer one.
    has_suffix = "if capability >= 90" in host.read(f"{folder}/compiler.py") and capability >= 9
    wanted = code_name(target.chip) + "a" * has_suffix
    words = f"ptxas fatal   : Value '{wanted}' is not defined for option 'gpu-name'"
    cause = f"its ptxas knows chips up to sm_{max(known)}"
    hint = "set TRITON_PTXAS_PATH to the ptxas of a newer CUDA, or install a newer triton"
    return Fault("no-code-for-chip", wanted, words, (path,), cause, hint)


# ---- processors -----------------------------------------------------------------------------------


def _processor_faults(host: Host, dist: Distribution, target: TargetMachine) -> Iterator[Fault]:
    """Yield why a package's files are not for a machine's processor."""
    level = x86_64_level(frozenset(target.features))
    if level and (fault := _below_floor(host, dist, target)):
        yield fault
    # No known wheel is marked for more than level 3.
    is_old = "" < level < "x86-64-v3"
    for path in shared_objects(host, dist) if target.machine or is_old else ():
        try:
            machine, needed = host.extracted(path, processor_needed, tuple[str, str])
        except (NotALibrary, OSError, NotAnswering):
            continue
        if target.machine and machine != target.machine:
            words = f"{path}: cannot open shared object file: No such file or directory"
            cause = f"the file is for {machine}, not for {target.machine}"
            hint = "--lock and --if-installed judge the wheels for that machine"
            yield Fault("wrong-architecture", path, words, (path,), cause, hint)
            return
        if is_old and needed > level:
            message = f"{path}: CPU ISA level is lower than required"
            yield Fault("cpu-too-old", needed, message, (path,), f"{target.title or target.name} is {level}")
            return


def _below_floor(host: Host, dist: Distribution, target: TargetMachine) -> Fault | None:
    """Return a fault if the wheel of a package, or of one that it imports, needs more than a CPU has."""
    imported = {name for row in cpu_floors() if dist.name in row.importers for name in row.distributions}
    for name in (dist.name, *sorted(imported)):
        owner = distribution(host, name)
        # What a user or a distribution compiles may need less or more.
        if not owner or "manylinux" not in host.read(f"{owner.info}/WHEEL", 1 << 16):
            continue
        if unmet := unmet_floor(name, owner.version, frozenset(target.features), distributions(host)):
            row, missing = unmet
            needs, lacks = joined(row.needs), joined([word.upper() for word in missing])
            instead = row.instead.format(version=owner.version)
            code = "no-code-for-chip" if row.loads else "cpu-too-old"
            words = f"{row.message.rstrip('.')}: it needs {needs}"
            cause = f"the wheels of {name} need {needs}; {target.title or target.name} lacks {lacks}"
            hint = f"install {instead}" if instead else f"build {name} from source for this CPU"
            return Fault(code, needs, words, cause=cause, hint=hint)
    return None


def processor_needed(path: str) -> tuple[str, str]:
    """Return the architecture of an ELF file, and the x86-64 level that it is marked to need, "" for none.

    glibc 2.33 and newer refuse a file whose level the CPU lacks.
    """
    with ElfImage(path) as image:
        for kind, offset, _, size in image.segments:
            note = image.exactly(offset, min(size, _NOTE_BYTES)) if kind == _PT_GNU_PROPERTY else b""
            if needed := _ISA_1_NEEDED.search(note):
                return image.machine, f"x86-64-v{needed[1][0].bit_length()}"
        return image.machine, ""


_MODEL = pattern(r"(?m)^Model:[ \t]+(.+)$")
_CODE_FILES = bytes_pattern(
    rb'(?:\.(?:cubin|hsaco|co|fatbin|dat)|/aotriton\.images/amd-gfx[^,\n]*)(?=[,"])[^\n]*'
)
_NAMED_AFTER = pattern(r"(?<![0-9a-z])gfx[0-9]{1,2}[0-9a-fx]{2}(?![0-9a-z])")
_DEVICE_WHEEL = pattern(r"(?m)^Requires-Dist: ([\w-]+-device-(gfx[0-9]{1,2}[0-9a-f]{2}))(?![0-9a-z_])")
_SM_NUMBER = bytes_pattern(rb"\bsm_(\d{2,3})\0")
_PT_GNU_PROPERTY, _ISA_1_NEEDED = 0x6474E553, bytes_pattern(rb"\x02\x80\x00\xc0\x04\x00\x00\x00([\x01-\x0f])")
_ASSEMBLER_BYTES, _NOTE_BYTES = 1 << 28, 1 << 16
