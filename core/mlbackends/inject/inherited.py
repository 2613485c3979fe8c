"""What the environment of a `backends run` says already; what is asked here goes before it.

First the variables that begin with MLBACKENDS_, then what a run around this one carries, then the file
that MLBACKENDS_FLAGS names. The variables of torch and the libraries are read by those themselves;
they only go before the last two.
"""

from collections.abc import Mapping

import msgspec

from mlbackends.inject.environment import CARRIED
from mlbackends.inject.planning import Step
from mlbackends.model.errors import BadInput
from mlbackends.switches.conflicts import contradict
from mlbackends.switches.files import from_data, read
from mlbackends.switches.startup import FILE_VARIABLE, OUR_PREFIX, as_error, said_by_variables
from mlbackends.switches.table import FLAGS


def merged(values: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the values, and those of the environment that neither are among them nor contradict them.

    Raises BadInput where the environment holds something else than switches.
    """
    said, problems = said_by_variables(environment)
    wrong = [sentence for variable, sentence in problems if variable.startswith(OUR_PREFIX)]
    if wrong:
        raise BadInput(as_error(wrong))
    ours = {name: value for name, (by, value) in said.items() if by.startswith(OUR_PREFIX)}
    theirs = {name: value for name, (_, value) in said.items() if name not in ours}
    made = _added(ours, dict(values))
    for below in (_carried(environment), _of_file(environment)):
        held = _added(below, theirs)
        made = _added({name: value for name, value in held.items() if name in below}, made)
    return made


def without_contradicting(
    values: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return an environment without the variables of switches that contradict the values."""
    given = {name: value for name, value in values.items() if value is not None}
    left = dict(environment)
    for name, (_, value) in said_by_variables(environment)[0].items():
        if name not in values and value is not None and contradict({name: value}, given):
            for variable in FLAGS[name].variables:
                left.pop(variable, None)
    return left


def _added(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return what stands above, and of what stands below that which it leaves room for."""
    made = dict(above)
    for name, value in below.items():
        given = {each: told for each, told in made.items() if told is not None}
        if name not in made and (value is None or not contradict({name: value}, given)):
            made[name] = value
    return made


def _of_file(environment: Mapping[str, str]) -> dict[str, object]:
    path = environment.get(FILE_VARIABLE, "")
    try:
        return read(path) if path else {}
    except BadInput as error:
        raise BadInput(f"the file that {FILE_VARIABLE} names: {error}", error.hint) from None


def _carried(environment: Mapping[str, str]) -> dict[str, object]:
    text = environment.get(CARRIED, "")
    if not text:
        return {}
    try:
        steps = msgspec.json.decode(text.encode("utf-8", "replace"), type=tuple[Step, ...])
        return {step.name: from_data(FLAGS[step.name], step.value) for step in steps}
    except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
        raise BadInput(
            f"the variable {CARRIED} does not hold the switches of a `backends run`: {str(error)[:200]}",
            f"unset {CARRIED}",
        ) from None
