"""Switches set in another program, from outside: in its torch, and in MKL, oneDNN and OpenMP.

values = merged(requested(("cudnn.benchmark=true",), ()), os.environ)
environment = injected(values, command, os.environ)
replace_process(command, environment)
"""

from collections.abc import Mapping, Sequence

from mlbackends.inject.start import (
    environment_with,
    is_plain_script,
    needs_target,
    refuse,
    replace_process,
    startable,
)
from mlbackends.inject.steps import plan
from mlbackends.inject.target import target_of
from mlbackends.inject.values import merged, requested, without_contradicting
from mlbackends.switches.startup import FILE_VARIABLE

__all__ = ["injected", "is_plain_script", "merged", "replace_process", "requested", "startable"]


def injected(
    values: Mapping[str, object], command: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment with which a command gets the switches.

    values: by the names of switches, each checked; None leaves one to its library. Those of the file
    that MLBACKENDS_FLAGS names are among them: the command does not get that variable.
    Raises BadInput where one cannot be applied there, as far as that is known before the start.
    """
    planned = plan(values)
    refuse(values, planned, target_of(command, environment) if needs_target(values) else None)
    found = environment_with(planned, without_contradicting(values, environment))
    # Its switches are among the values; read again below them, it could contradict some.
    found.pop(FILE_VARIABLE, None)
    return found
