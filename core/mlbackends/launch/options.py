"""The options of a launch as data: argparse, click and the man page are made from one table.

Names, spellings and defaults are those of torch 2.13's run_cpu; `cores` is ours.
"""

from typing import Annotated, NamedTuple, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

MODULE = ("program", "What to start")
ALLOCATOR = ("memory allocator", "Which malloc the program gets")
OPENMP = ("OpenMP", "Which OpenMP runtime it gets")
INSTANCES = ("instances", "How many are started, and where")


class _Help(NamedTuple):
    """What the help shows of an option. short: a spelling of one letter, or ""."""

    group: tuple[str, str]
    text: str
    metavar: str = ""
    short: str = ""


class Options(Struct, frozen=True, kw_only=True):
    """The settings of a launch; -1 and None stand for "not given"."""

    # fmt: off
    multi_instance: Annotated[bool, _Help(INSTANCES,
        "Without counts, start one instance per NUMA node, as --throughput-mode does.")] = False
    module: Annotated[bool, _Help(MODULE,
        "The program is the name of a module, started by python -m.", short="-m")] = False
    no_python: Annotated[bool, _Help(MODULE,
        "Start the program itself, not by python; for what is no script.")] = False
    enable_tcmalloc: Annotated[bool, _Help(ALLOCATOR, "Preload tcmalloc.")] = False
    enable_jemalloc: Annotated[bool, _Help(ALLOCATOR, "Preload jemalloc.")] = False
    use_default_allocator: Annotated[bool, _Help(ALLOCATOR,
        "Preload none; otherwise tcmalloc or jemalloc is preloaded where one is found.")] = False
    disable_iomp: Annotated[bool, _Help(OPENMP, "Do not preload Intel's OpenMP runtime, libiomp5.")] = False
    ncores_per_instance: Annotated[int, _Help(INSTANCES, "Cores of each instance.", "N")] = -1
    ninstances: Annotated[int, _Help(INSTANCES, "How many instances.", "N")] = -1
    skip_cross_node_cores: Annotated[bool, _Help(INSTANCES,
        "Leave the cores over that would make an instance span two NUMA nodes.")] = False
    rank: Annotated[int, _Help(INSTANCES,
        "Start only this one of the instances, counted from 0.", "N")] = -1
    latency_mode: Annotated[bool, _Help(INSTANCES, "Four cores per instance, on all physical cores.")] = False
    throughput_mode: Annotated[bool, _Help(INSTANCES,
        "One instance per NUMA node, on all physical cores.")] = False
    node_id: Annotated[int, _Help(INSTANCES, "Use only the cores of this NUMA node.", "N")] = -1
    use_logical_core: Annotated[bool, _Help(INSTANCES,
        "Use every hyper-thread, not one of each core.")] = False
    disable_numactl: Annotated[bool, _Help(INSTANCES, "Do not bind by numactl.")] = False
    disable_taskset: Annotated[bool, _Help(INSTANCES,
        "Do not bind by taskset; with --disable-numactl, not at all.")] = False
    core_list: Annotated[str | None, _Help(INSTANCES,
        "Use these CPUs, such as 0,1,2 or 0-3,8; needs --ncores-per-instance.", "LIST")] = None
    cores: Annotated[str | None, _Help(INSTANCES,
        "Use only these CPUs, such as 0-3,8; all else is counted among them.", "LIST")] = None
    log_path: Annotated[str, _Help(MODULE,
        "Write what each instance prints below this folder; the console's lines are tagged then.",
        "FOLDER")] = ""
    log_file_prefix: Annotated[str, _Help(MODULE,
        "The tag of the console's lines: run gives [run0]:.", "TAG")] = "run"
    # fmt: on


class Option(Struct, frozen=True):
    """One option: its field in `Options`, and what the help shows.

    kind: bool (a flag without a value), int or str. short: a spelling of one letter, or "".
    """

    name: str
    kind: type
    default: bool | int | str | None
    group: tuple[str, str]
    help: str
    metavar: str = ""
    short: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling, short first: -m --module; --node-id --node_id."""
        dashed = f"--{self.name.replace('_', '-')}"
        underscored = f"--{self.name}"
        return tuple(dict.fromkeys(flag for flag in (self.short, dashed, underscored) if flag))


_TYPES = {
    name: get_args(hint) for name, hint in get_type_hints(Options, include_extras=True).items()
}
OPTIONS: tuple[Option, ...] = tuple(
    Option(field.name, kind if isinstance(kind, type) else str, field.default, *shown)
    for field in fields(Options)
    for kind, shown in [_TYPES[field.name]]
)
"""Every option, in the order of `Options`."""
