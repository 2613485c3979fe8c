"""Switches carried into another program: into its torch, and into MKL, oneDNN and OpenMP, from outside.

values = merged(asked(("cudnn.benchmark=true",), ()), os.environ)
environment = carried(values, command, os.environ)
become(command, environment)
"""

from collections.abc import Mapping, Sequence

from mlbackends.carrying.asked import asked
from mlbackends.carrying.environment import environment_with
from mlbackends.carrying.inherited import merged
from mlbackends.carrying.planning import plan
from mlbackends.carrying.refusals import needs_target, refuse
from mlbackends.carrying.starting import become, completed, is_plain_script
from mlbackends.carrying.target import target_of

__all__ = ["asked", "become", "carried", "completed", "is_plain_script", "merged"]


def carried(
    values: Mapping[str, object], command: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment with which a command gets the switches.

    values: by the names of switches, each checked; None leaves one to its library.
    Raises BadInput where one cannot be applied there, as far as that can be told before the start.
    """
    made = plan(values)
    refuse(values, made, target_of(command, environment) if needs_target(values) else None)
    return environment_with(made, environment)
