"""Switches carried into another program: into its torch, and into MKL, oneDNN and OpenMP, from outside.

values = merged(asked(("cudnn.benchmark=true",), ()), os.environ)
environment = carried(values, command, os.environ)
become(command, environment)
"""

from collections.abc import Mapping, Sequence

from mlbackends.inject.asked import asked
from mlbackends.inject.environment import environment_with
from mlbackends.inject.inherited import merged, without_contradicting
from mlbackends.inject.planning import plan
from mlbackends.inject.refusals import needs_target, refuse
from mlbackends.inject.starting import become, completed, is_plain_script
from mlbackends.inject.target import target_of
from mlbackends.switches.startup import FILE_VARIABLE

__all__ = ["asked", "become", "carried", "completed", "is_plain_script", "merged"]


def carried(
    values: Mapping[str, object], command: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment with which a command gets the switches.

    values: by the names of switches, each checked; None leaves one to its library. Those of the file
    that MLBACKENDS_FLAGS names are among them: the command does not get that variable.
    Raises BadInput where one cannot be applied there, as far as that can be told before the start.
    """
    made = plan(values)
    refuse(values, made, target_of(command, environment) if needs_target(values) else None)
    found = environment_with(made, without_contradicting(values, environment))
    # Its switches are among the values; read again below them, it could contradict some.
    found.pop(FILE_VARIABLE, None)
    return found
