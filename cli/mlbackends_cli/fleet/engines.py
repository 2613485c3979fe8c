"""The engines that commands of `fleet` name: their options, and the module that is meant."""

from types import ModuleType

import click

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends_cli.options import together

#: The options that name a cluster with workers.
CLUSTER = together(
    click.option(
        "--ray", metavar="[ADDRESS]", is_flag=False, flag_value="auto", help="Run on a Ray cluster."
    ),
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Run on the Dask cluster with the scheduler at this address.",
    ),
    click.option(
        "--engine",
        metavar="NAME[=ADDRESS]",
        help="Run on another engine, which a package provides.",
    ),
)


def named(engine: str | None, **asked: str | None) -> list[tuple[str, str]]:
    """Return the engines that are asked for, and their addresses. asked: the address of each, or None.

    Raises BadInput where there are several.
    """
    name, _, where = (engine or "").partition("=")
    every = {**asked, name: where if engine else None}
    found = [(each, address) for each, address in every.items() if address is not None]
    if len(found) > 1:
        raise BadInput(f"name one engine, not {' and '.join(name for name, _ in found)}")
    return found


def loaded(name: str) -> ModuleType:
    """Import an engine. Raises UnknownName, and BadInput where it cannot be imported."""
    module = registry.load("mlbackends.fleet.engines", name)
    if error := registry.import_error(module):
        raise BadInput(f"the engine {name} cannot be imported: {type(error).__name__}: {error}")
    return module
