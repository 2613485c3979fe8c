"""The options of a launch, from which argparse, click and the man page are made, and its errors.

Names, spellings and defaults are those of torch 2.15's run_cpu; --cores is another name of --core-list.
The texts are in options.json.
"""

from typing import get_args

from msgspec import Struct
from msgspec.structs import fields

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.tables import table


class Refused(MlBackendsError, RuntimeError):
    """Options that contradict each other, or need more than this machine has."""


class UnknownCpu(MlBackendsError, KeyError):
    """A CPU that does not exist, is off, or that this process may not use."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would put it in quotes


class Option(Struct, frozen=True, kw_only=True):
    """One option. kind: bool (a flag without a value), int or str. also: another spelling, or ""."""

    name: str
    group: str
    help: str
    kind: type
    default: bool | int | str | None
    metavar: str = ""
    also: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling: -m --module; --node-id --node_id."""
        spellings = (self.also, f"--{self.name.replace('_', '-')}", f"--{self.name}")
        return tuple(dict.fromkeys(filter(None, spellings)))


class Options(Struct, frozen=True, kw_only=True):
    """The settings of a launch; -1 and None mean "not given"."""

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
    log_path: str = ""
    log_file_prefix: str = "run"


#: Every option, in the order of `Options`.
OPTIONS: tuple[Option, ...] = tuple(
    Option(
        name=field.name,
        kind=(*get_args(field.type), field.type)[0],
        default=field.default,
        **table("launch/options")[field.name],
    )
    for field in fields(Options)
)
