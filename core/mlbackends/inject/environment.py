"""The environment that a program is started with, so that it gets what is planned."""

import os
from collections.abc import Mapping

import msgspec

from mlbackends.inject.planning import Plan
from mlbackends.model.errors import BadInput

CARRIED = "MLBACKENDS_CARRIED"
"""The variable with the steps of the import hook, as JSON."""
_PATH = "PYTHONPATH"


def hook_folder() -> str:
    """Return the folder whose sitecustomize.py is the hook."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")


def environment_with(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a program's whole environment. Raises BadInput where the hook cannot be put on its path."""
    made = dict(environment)
    for name, text in {**plan.variables, CARRIED: _encoded(plan)}.items():
        if text is None:
            made.pop(name, None)
        else:
            made[name] = text
    if not plan.steps:
        return made
    folder = hook_folder()
    if os.pathsep in folder or not os.path.isfile(os.path.join(folder, "sitecustomize.py")):
        raise BadInput(f"{folder} cannot be put on {_PATH}", "install mlbackends in another folder")
    # An empty entry would stand for the current folder.
    others = [each for each in made.get(_PATH, "").split(os.pathsep) if each != folder]
    made[_PATH] = os.pathsep.join([folder, *others] if others != [""] else [folder])
    return made


def _encoded(plan: Plan) -> str | None:
    return msgspec.json.encode(plan.steps).decode() if plan.steps else None
