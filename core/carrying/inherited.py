"""What a `backends run` around this one carries already; what is asked here goes before it."""

from collections.abc import Mapping

import msgspec

from mlbackends.carrying.environment import CARRIED
from mlbackends.carrying.planning import Step
from mlbackends.flag_contradictions import contradict
from mlbackends.flag_files import from_data
from mlbackends.flag_table import FLAGS
from mlbackends.model.errors import BadInput


def merged(values: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the values, and those of the run around that neither are among them nor contradict them.

    Raises BadInput where the variable holds something else than switches.
    """
    made = dict(values)
    for name, value in _carried(environment).items():
        given = {each: told for each, told in made.items() if told is not None}
        if name not in made and not contradict({name: value}, given):
            made[name] = value
    return made


def _carried(environment: Mapping[str, str]) -> dict[str, object]:
    text = environment.get(CARRIED, "")
    if not text:
        return {}
    try:
        steps = msgspec.json.decode(text.encode("utf-8", "replace"), type=tuple[Step, ...])
        return {step.name: from_data(FLAGS[step.name], step.value) for step in steps}
    except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
        raise BadInput(
            f"the variable {CARRIED} does not hold the switches of a `backends run`: {error}",
            f"unset {CARRIED}",
        ) from None
