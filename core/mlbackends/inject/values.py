"""The values that a `backends run` sets: its options, and below them its environment.

Options first: settings, then files. Then the variables that begin with MLBACKENDS_, then the switches of
a run around this one, then the file that MLBACKENDS_FLAGS names. The variables of torch and the libraries
are read by those themselves; they only go before the last two.
"""

from collections.abc import Mapping, Sequence

import msgspec

from mlbackends.base.errors import BadInput
from mlbackends.inject.start import STEPS_VARIABLE
from mlbackends.inject.steps import Step
from mlbackends.switches.cells import lost
from mlbackends.switches.files import from_data, read, settings
from mlbackends.switches.startup import FILE_VARIABLE, OUR_PREFIX, as_error, switches_of_variables
from mlbackends.switches.table import SWITCHES


def requested(texts: Sequence[str], files: Sequence[str]) -> dict[str, object]:
    """Return the values of files, and of texts such as "cudnn.benchmark=true", which go before.

    Raises UnknownName, and BadInput with file, line and key; also where two files, or two texts, give
    one switch different values.
    """
    found: dict[str, object] = {}
    sources: dict[str, str] = {}
    for path in files:
        for name, value in read(path).items():
            if name in found and found[name] != value:
                raise BadInput(
                    f"{path} and {sources[name]} set {name} to different values:"
                    f" {SWITCHES[name].kind.written(value)} and {SWITCHES[name].kind.written(found[name])}",
                    f"choose one with --set {name}=VALUE",
                )
            found[name] = value
            sources.setdefault(name, path)
    return {**found, **settings(tuple(texts))}


def merged(values: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the values, and those of the environment that neither are among them nor contradict them.

    Raises BadInput where the environment holds something else than switches.
    """
    found, problems = switches_of_variables(environment)
    wrong = [sentence for variable, sentence in problems if variable.startswith(OUR_PREFIX)]
    if wrong:
        raise BadInput(as_error(wrong))
    ours = {name: value for name, (by, value) in found.items() if by.startswith(OUR_PREFIX)}
    theirs = {name: value for name, (_, value) in found.items() if name not in ours}
    merged = _added(ours, dict(values))
    text = environment.get(STEPS_VARIABLE, "")
    try:
        data = text.encode("utf-8", "replace")
        steps = msgspec.json.decode(data, type=tuple[Step, ...]) if text else ()
        of_steps = {step.name: from_data(SWITCHES[step.name], step.value) for step in steps}
    except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
        raise BadInput(
            f"the variable {STEPS_VARIABLE} does not contain the switches of a `backends run`:"
            f" {str(error)[:200]}",
            f"unset {STEPS_VARIABLE}",
        ) from None
    path = environment.get(FILE_VARIABLE, "")
    try:
        of_file = read(path) if path else {}
    except BadInput as error:
        raise BadInput(f"the file that {FILE_VARIABLE} names: {error}", error.hint) from None
    for below in (of_steps, of_file):
        allowed = _added(below, theirs)
        merged = _added({name: allowed[name] for name in below if name in allowed}, merged)
    return merged


def without_contradicting(values: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of switches that contradict the values."""
    left = dict(environment)
    for name, (_, value) in switches_of_variables(environment)[0].items():
        if name not in values and value is not None and lost({name: value, **values}):
            for variable in SWITCHES[name].variables:
                left.pop(variable, None)
    return left


def _added(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return the values above, and those below that do not contradict them."""
    merged = dict(above)
    for name, value in below.items():
        if name not in merged and (value is None or not lost({name: value, **merged})):
            merged[name] = value
    return merged
