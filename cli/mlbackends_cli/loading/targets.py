"""The machines that `--for` names, and how each package's GPU code fits each chip."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.cpu.features import level_features
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.loading.chips import ARM_CHIPS, chip_matrix, code_name, gpus, package_code
from mlbackends.loading.gpu_code import chip_table
from mlbackends.loading.packages import installed_as
from mlbackends.model.loading import TargetMachine
from mlbackends.sdpa import named_devices
from mlbackends_cli import formats
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import Group, Listing

_LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_WORDS = {"code": "✓", "ptx": "PTX", "part": "part", "none": "✗", "unknown": "?", "": ""}
_NOTHING = "no installed package has GPU code"
_LEGEND = "✓ machine code · PTX compiled at first use · part: some files lack code · ✗ none · ? compressed"


def target_machine(name: str) -> TargetMachine:
    """Return the machine that a name such as h100, sm_121, gfx1151, x86-64-v2 or aarch64 stands for.

    "glibc-2.31" and "driver-550.54" are machines of which only that is known. Raises UnknownName, with the
    nearest names.
    """
    text = name.lower().strip()
    kind, _, release = text.partition("-")
    if kind in ("driver", "glibc"):
        if not dotted_numbers(release):
            example = {"driver": "driver-550.54", "glibc": "glibc-2.31"}[kind]
            raise BadInput(f"--for {name} has no version", f"write it as {example}")
        return replace(TargetMachine(text, f"{kind} {release}"), **{kind: release})
    if machine := _MACHINES.get(text):
        return TargetMachine(text, machine, machine=machine)
    level = re.sub(r"^(?:x86[-_]64[-_]?|x86[-_])v", "x86-64-v", "x86-64-v1" if text == "x86-64" else text)
    if features := level_features(level):
        return TargetMachine(level, level, machine="x86_64", features=tuple(sorted(features)))
    if text.startswith("x86"):
        raise UnknownName("machine", name, (*_LEVELS, *_MACHINES))
    if text in (chip for chips in chip_table()["generic"].values() for chip in chips):
        return TargetMachine(text, text, text, vendor="amd")
    row = named_devices.named(named_devices.canonical(name))
    if row is None or row.device.kind not in ("cuda", "rocm"):
        raise UnknownName("machine", name, (), "backends sdpa list --devices")
    chip = row.device.capability
    title = text if text in (chip, code_name(chip)) else f"{text} ({code_name(chip)})"
    # A compiler's name, sm_121, asks about GPU code alone; these products have an ARM processor.
    is_product = not re.fullmatch(r"(?:cuda[: ])?(?:sm|compute)?_?[\d.]+[af]?", text)
    is_arm = is_product and (chip in ARM_CHIPS or re.search(r"\bg[bh]\d", text))
    machine = "aarch64" if is_arm else ""
    vendor = "amd" if row.device.kind == "rocm" else "nvidia"
    return TargetMachine(text, title, chip, machine, vendor)


def matrix_text(
    host: Host, subjects: Sequence[str], targets: Sequence[TargetMachine], form: str, page: Page
) -> str:
    """Return how the GPU code of packages, all of them by default, fits chips, by default the usual ones."""
    if not formats.has(form, "record", "listing"):
        raise BadInput(f"--matrix cannot be written as {form}", "use table, markdown or json")
    chips = tuple(dict.fromkeys(target.chip for target in targets if target.chip))
    if targets and not chips:
        raise BadInput("--matrix compares GPUs, and --for names none", "name one, such as --for h100")
    dists = [installed_as(host, subject) for subject in subjects]
    dists = dists or [installed[0] for installed in distributions(host).values()]
    if not chips:
        vendors = {code.vendor for dist in dists for code in package_code(host, dist).values()} or {"nvidia"}
        usual = [chip for vendor in sorted(vendors, reverse=True) for chip in chip_table()["usual"][vendor]]
        chips = (*{target.chip for target in gpus(host)}.difference(usual, {""}), *usual)
    matrix = chip_matrix(host, dists, chips)
    if not formats.has(form, "listing"):
        return formats.text(form, "record", matrix, page)
    rows = tuple((row.name, *(_WORDS[row.fits[chip]] for chip in chips)) for row in matrix.packages)
    note = _LEGEND if rows else _NOTHING
    return formats.text(form, "listing", Listing(("package", *chips), (Group("", rows),), (note,)), page)
