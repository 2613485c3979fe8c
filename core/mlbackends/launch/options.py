"""The options of a launch as data: argparse, click and the man page are made from one table.

Names, spellings and defaults are those of torch 2.13's run_cpu; `cores` is ours.
"""

from msgspec import Struct
from msgspec.structs import fields

MODULE = ("program", "What to start")
ALLOCATOR = ("memory allocator", "Which malloc the program gets")
OPENMP = ("OpenMP", "Which OpenMP runtime it gets")
INSTANCES = ("instances", "How many are started, and where")


class Options(Struct, frozen=True, kw_only=True):
    """What is asked of a launch; -1 and None stand for "not given"."""

    multi_instance: bool = False
    module: bool = False
    no_python: bool = False
    enable_tcmalloc: bool = False
    enable_jemalloc: bool = False
    use_default_allocator: bool = False
    disable_iomp: bool = False
    ncores_per_instance: int = -1
    ninstances: int = -1
    skip_cross_node_cores: bool = False
    rank: int = -1
    latency_mode: bool = False
    throughput_mode: bool = False
    node_id: int = -1
    use_logical_core: bool = False
    disable_numactl: bool = False
    disable_taskset: bool = False
    core_list: str | None = None
    cores: str | None = None
    log_path: str = ""
    log_file_prefix: str = "run"


class Option(Struct, frozen=True):
    """One option: its field in `Options`, and what stands in the help.

    kind: bool (a flag without a value), int or str. short: a spelling of one letter, or "".
    """

    name: str
    kind: type
    default: bool | int | str | None
    group: tuple[str, str]
    help: str
    short: str = ""
    metavar: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling, short first: -m --module; --node-id --node_id."""
        dashed = f"--{self.name.replace('_', '-')}"
        underscored = f"--{self.name}"
        return tuple(dict.fromkeys(flag for flag in (self.short, dashed, underscored) if flag))


_TOLD: dict[str, tuple[tuple[str, str], str]] = {
    "multi_instance": (
        INSTANCES,
        "Without counts, start one instance per NUMA node, as --throughput-mode does.",
    ),
    "module": (MODULE, "The program is the name of a module, started by python -m."),
    "no_python": (MODULE, "Start the program itself, not by python; for what is no script."),
    "enable_tcmalloc": (ALLOCATOR, "Preload tcmalloc."),
    "enable_jemalloc": (ALLOCATOR, "Preload jemalloc."),
    "use_default_allocator": (
        ALLOCATOR,
        "Preload none; otherwise tcmalloc or jemalloc is preloaded where one is found.",
    ),
    "disable_iomp": (OPENMP, "Do not preload Intel's OpenMP runtime, libiomp5."),
    "ncores_per_instance": (INSTANCES, "Cores of each instance."),
    "ninstances": (INSTANCES, "How many instances."),
    "skip_cross_node_cores": (
        INSTANCES,
        "Leave the cores over that would make an instance span two NUMA nodes.",
    ),
    "rank": (INSTANCES, "Start only this one of the instances, counted from 0."),
    "latency_mode": (INSTANCES, "Four cores per instance, on all physical cores."),
    "throughput_mode": (INSTANCES, "One instance per NUMA node, on all physical cores."),
    "node_id": (INSTANCES, "Use only the cores of this NUMA node."),
    "use_logical_core": (INSTANCES, "Use every hyper-thread, not one of each core."),
    "disable_numactl": (INSTANCES, "Do not bind by numactl."),
    "disable_taskset": (INSTANCES, "Do not bind by taskset; with --disable-numactl, not at all."),
    "core_list": (
        INSTANCES,
        "Use these CPUs, such as 0,1,2 or 0-3,8; needs --ncores-per-instance.",
    ),
    "cores": (INSTANCES, "Use only these CPUs, such as 0-3,8; all else is counted among them."),
    "log_path": (
        MODULE,
        "Write what each instance prints below this folder; the console's lines are tagged then.",
    ),
    "log_file_prefix": (MODULE, "The tag of the console's lines: run gives [run0]:."),
}
_SHORT = {"module": "-m"}
_METAVARS = {"core_list": "LIST", "cores": "LIST", "log_path": "FOLDER", "log_file_prefix": "TAG"}
_KINDS = {bool: bool, int: int, str: str, str | None: str}

OPTIONS: tuple[Option, ...] = tuple(
    Option(
        field.name,
        _KINDS[field.type],
        field.default,
        _TOLD[field.name][0],
        _TOLD[field.name][1],
        _SHORT.get(field.name, ""),
        _METAVARS.get(field.name, "N" if field.type is int else ""),
    )
    for field in fields(Options)
)
"""Every option, in the order of `Options`."""
