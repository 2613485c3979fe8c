"""The machines that `--for` names, and how each package's GPU code fits each chip."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.cpu.features import level_features
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.loading.chips import chip_matrix, code_name, gpus, package_code
from mlbackends.loading.gpu_code import AMD_CHIPS
from mlbackends.loading.packages import installed_as
from mlbackends.model.loading import ChipMatrix, TargetMachine
from mlbackends.sdpa import named_devices
from mlbackends_cli import exits, formats
from mlbackends_cli.output import write
from mlbackends_cli.terminal import Page, page
from mlbackends_cli.text.plain import Group, Listing

LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
#: What `--matrix` compares where no `--for` names a chip: the usual GPUs of data centres and desks.
USUAL = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
USUAL_OF_AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_WORDS = {"code": "✓", "ptx": "PTX", "part": "part", "none": "✗", "unknown": "?", "": ""}
_LEGEND = "✓ machine code · PTX compiled at first use · part: some files lack code · ✗ none · ? compressed"


def target_machine(name: str) -> TargetMachine:
    """Return the machine that a name such as h100, sm_121, gfx1151, x86-64-v2 or aarch64 stands for.

    "glibc-2.31" and "driver-550.54" are machines of which only that is known. Raises UnknownName, with the
    nearest names.
    """
    text = name.lower().strip()
    kind, _, release = text.partition("-")
    if kind in ("driver", "glibc") and dotted_numbers(release):
        target = TargetMachine(text, f"{kind} {release}")
        return replace(target, driver=release) if kind == "driver" else replace(target, glibc=release)
    if machine := _MACHINES.get(text):
        return TargetMachine(text, machine, machine=machine)
    level = re.sub(r"^(?:x86[-_]64[-_]?|x86[-_])v", "x86-64-v", text)
    if features := level_features(level):
        return TargetMachine(level, level, machine="x86_64", features=tuple(sorted(features)))
    if text.startswith("x86"):
        raise UnknownName("machine", name, (*LEVELS, *_MACHINES))
    chip, _, mode = text.partition(":")
    if chip in AMD_CHIPS:
        return TargetMachine(text, chip, f"{chip}:{mode}" if mode else chip, vendor="amd")
    row = named_devices.NAMED.get(named_devices.canonical(name))
    if row is None or row.device.kind not in ("cuda", "rocm"):
        raise UnknownName("machine", name, (), "backends sdpa list --devices")
    vendor = "amd" if row.device.kind == "rocm" else "nvidia"
    chip = row.device.capability
    title = text if text in (chip, code_name(chip)) else f"{text} ({code_name(chip)})"
    return TargetMachine(text, title, chip, vendor=vendor)


def show_matrix(
    host: Host,
    subjects: Sequence[str],
    targets: Sequence[TargetMachine],
    *,
    form: str,
    output: str,
    color: str,
) -> int:
    """Write how the GPU code of packages, all of them by default, fits chips, by default the usual ones."""
    if form != "html" and not formats.has(form, "record", "listing"):
        raise BadInput(f"--matrix cannot be written as {form}", "use table, markdown, html or json")
    if unsuited := [subject for subject in subjects if "/" in subject]:
        raise BadInput(f"--matrix compares packages, and {unsuited[0]} is a path", "name the package")
    dists = [installed_as(host, subject) for subject in subjects]
    dists = dists or [installed[0] for installed in distributions(host).values()]
    chips = tuple(dict.fromkeys(target.chip for target in targets if target.chip))
    if targets and not chips:
        raise BadInput("--matrix compares GPUs, and --for names none", "name one, such as --for h100")
    has = {code.vendor for dist in dists for code in package_code(host, dist).values()}
    if not chips:
        here = {target.chip for target in gpus(host)} - {"", *USUAL, *USUAL_OF_AMD}
        chips = (*here, *(USUAL if has != {"amd"} else ()), *(USUAL_OF_AMD if "amd" in has else ()))
    write(matrix_text(chip_matrix(host, dists, chips), form, page(color, output)), output)
    return exits.YES


def matrix_text(matrix: ChipMatrix, form: str, page: Page) -> str:
    """Return a matrix in one of the formats."""
    is_table = form == "table"
    columns = ("package", *(chip if is_table else code_name(chip) for chip in matrix.chips))
    rows = [
        (
            row.name if is_table else f"{row.name} {row.version}",
            *(_WORDS[row.fits[chip]] for chip in matrix.chips),
        )
        for row in matrix.packages
    ]
    if form == "html":
        from mlbackends_cli.text.elements import document, footer, header, scrolled, section, table, words
        from mlbackends_cli.text.elements import row as cells

        body = (cells(name, *(words("td", fit) for fit in fits)) for name, *fits in rows)
        return document(
            "GPU code of packages",
            header("GPU code of packages", (matrix.python,), [])
            + section("fits", "Chips", scrolled(table(columns, body), "chips"), words("p", _LEGEND))
            + footer({"made by": matrix.tool, "schema": matrix.schema}),
            ("page",),
        )
    if not formats.has(form, "listing"):
        return formats.text(form, "record", matrix, page)
    # A page of 80 columns has room for a name and nine chips.
    widest = max((len(row[0]) for row in rows), default=0)
    room = max((len(column) for column in columns[1:]), default=0) + 2
    fitting = max(1, (page.width - widest) // room) if is_table else len(matrix.chips)
    parts = []
    for at in range(1, len(columns), fitting):
        chosen = slice(at, at + fitting)
        listed = tuple((row[0], *row[chosen]) for row in rows)
        notes = (_LEGEND,) if at + fitting >= len(columns) and rows else ()
        notes = notes or (() if rows else ("no installed package has GPU code",))
        listing = Listing((columns[0], *columns[chosen]), (Group("", listed),), notes)
        parts.append(formats.text(form, "listing", listing, page))
    return "\n".join(parts)
