"""The options of a launch as data: argparse, click and the man page are made from one table.

Names, spellings and defaults are those of torch 2.15's run_cpu; `cores` is ours.
"""

from typing import Annotated, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import fields, replace

MODULE = ("program", "What to start")
ALLOCATOR = ("memory allocator", "Which malloc the program gets")
OPENMP = ("OpenMP", "Which OpenMP runtime it gets")
INSTANCES = ("instances", "How many are started, and where")


class Option(Struct, frozen=True):
    """One option: what the help shows, and its field in `Options`.

    short: a spelling of one letter, or "". kind: bool (a flag without a value), int or str.
    """

    group: tuple[str, str]
    help: str
    metavar: str = ""
    short: str = ""
    name: str = ""
    kind: type = str
    default: bool | int | str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling, short first: -m --module; --node-id --node_id."""
        dashed = f"--{self.name.replace('_', '-')}"
        underscored = f"--{self.name}"
        return tuple(dict.fromkeys(flag for flag in (self.short, dashed, underscored) if flag))


class Options(Struct, frozen=True, kw_only=True):
    """The settings of a launch; -1 and None stand for "not given"."""

    # fmt: off
    multi_instance: Annotated[bool, Option(INSTANCES,
        "Without counts, start one instance per NUMA node, as --throughput-mode does.")] = False
    module: Annotated[bool, Option(MODULE,
        "The program is the name of a module, started by python -m.", short="-m")] = False
    no_python: Annotated[bool, Option(MODULE,
        "Start the program itself, not by python; for what is no script.")] = False
    enable_tcmalloc: Annotated[bool, Option(ALLOCATOR, "Preload tcmalloc.")] = False
    enable_jemalloc: Annotated[bool, Option(ALLOCATOR, "Preload jemalloc.")] = False
    use_default_allocator: Annotated[bool, Option(ALLOCATOR,
        "Preload none; otherwise tcmalloc or jemalloc is preloaded where one is found.")] = False
    disable_iomp: Annotated[bool, Option(OPENMP, "Do not preload Intel's OpenMP runtime, libiomp5.")] = False
    ncores_per_instance: Annotated[int | tuple[int, ...], Option(INSTANCES,
        "Cores of each instance; run_cpu takes several numbers, one an instance.", "N", kind=int)] = -1
    ninstances: Annotated[int, Option(INSTANCES, "How many instances.", "N")] = -1
    skip_cross_node_cores: Annotated[bool, Option(INSTANCES,
        "Leave the cores over that would make an instance span two NUMA nodes.")] = False
    rank: Annotated[int, Option(INSTANCES,
        "Start only this one of the instances, counted from 0.", "N")] = -1
    latency_mode: Annotated[bool, Option(INSTANCES,
        "Four cores per instance, on all physical cores.")] = False
    throughput_mode: Annotated[bool, Option(INSTANCES,
        "One instance per NUMA node, on all physical cores.")] = False
    node_id: Annotated[int, Option(INSTANCES, "Use only the cores of this NUMA node.", "N")] = -1
    use_logical_core: Annotated[bool, Option(INSTANCES,
        "Use every hyper-thread, not one of each core.")] = False
    disable_numactl: Annotated[bool, Option(INSTANCES, "Do not bind by numactl.")] = False
    disable_taskset: Annotated[bool, Option(INSTANCES,
        "Do not bind by taskset; with --disable-numactl, not at all.")] = False
    core_list: Annotated[str | None, Option(INSTANCES,
        "Use these CPUs, such as 0,1,2 or 0-3,8; needs --ncores-per-instance.", "LIST")] = None
    cores: Annotated[str | None, Option(INSTANCES,
        "Use only these CPUs, such as 0-3,8; all else is counted among them.", "LIST")] = None
    log_path: Annotated[str, Option(MODULE,
        "Write what each instance prints below this folder; the console's lines are tagged then.",
        "FOLDER")] = ""
    log_file_prefix: Annotated[str, Option(MODULE,
        "The tag of the console's lines: run gives [run0]:.", "TAG")] = "run"
    # fmt: on


_HINTS = get_type_hints(Options, include_extras=True)
OPTIONS: tuple[Option, ...] = tuple(
    replace(
        shown,
        name=field.name,
        kind=kind if isinstance(kind, type) else shown.kind,
        default=field.default,
    )
    for field in fields(Options)
    for kind, shown in [get_args(_HINTS[field.name])]
)
"""Every option, in the order of `Options`."""
