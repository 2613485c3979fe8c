"""From values to what carries each: a variable that the library reads, a call into torch, or both.

Nothing is asked of the machine here. Everything is in the order of the table, in which the older
switches stand before the entries that they bridge to, so that torch ends where our own store ends.
"""

from collections.abc import Mapping

from msgspec import Struct

from mlbackends.inject.torch_calls import argument_of, reads_of, write_of
from mlbackends.switches.cells import cells_of
from mlbackends.switches.conflicts import refuse_contradictions
from mlbackends.switches.files import as_data
from mlbackends.switches.table import FLAGS, Flag

_ALLOW_TF32 = "cuda.matmul.allow_tf32"


class Step(Struct, frozen=True, omit_defaults=True):
    """One switch as the import hook applies it, which knows nothing of our table.

    value: as JSON and our files have it; argument: as torch takes it. attribute: what that is
    assigned to; or call: the function that gets it, by the name `keyword` where that is not "".
    Neither: a variable has set it, and it is only read back. reads: each a path, and the value that
    must stand there then, None for any.
    """

    name: str
    value: object
    argument: object = None
    attribute: str = ""
    call: str = ""
    keyword: str = ""
    reads: tuple[tuple[str, object], ...] = ()

    @property
    def writes(self) -> bool:
        """Whether the hook must set it, because no variable can."""
        return bool(self.attribute or self.call)


class Plan(Struct, frozen=True):
    """What the program is started with.

    variables: what to set, None to unset. steps: what the import hook does, () where no hook is needed.
    """

    variables: dict[str, str | None]
    steps: tuple[Step, ...]


def plan(values: Mapping[str, object]) -> Plan:
    """Tell how each value gets into the program.

    values: by the names of switches, each checked; None leaves a switch to the library.
    Raises BadInput where two of them contradict each other.
    """
    carried = [(flag, values[name]) for name, flag in FLAGS.items() if name in values]
    refuse_contradictions({flag.name: value for flag, value in carried if value is not None})
    variables: dict[str, str | None] = {}
    for flag, _ in carried:
        for cell in cells_of(flag.name):
            variables.update(dict.fromkeys(FLAGS[cell].variables))
        variables.update(dict.fromkeys(flag.variables))
    steps = []
    for flag, value in carried:
        if value is None:
            continue
        told = _said(flag, value)
        variables.update(told)
        step = _step(flag, value, is_told_to_torch=not any(map(_is_ours, told)))
        if step.writes or step.reads:
            steps.append(step)
    return Plan(variables, tuple(steps))


def _said(flag: Flag, value: object) -> dict[str, str]:
    """Return the variables that say a value: torch's own where it can, else that of ours."""
    text = flag.kind.written(value)
    if flag.name == _ALLOW_TF32 and value is False:
        # 0 in torch's variable means "none", and the assignment means "ieee".
        return {FLAGS["cuda.matmul.fp32_precision"].variable: "ieee"}
    said = {}
    for variable, meanings in flag.variables.items():
        short = next((each for each, meaning in meanings.items() if meaning == text), None)
        if short is not None or not meanings:
            said[variable] = text if short is None else short
            break
    if flag.name == "cuda.sdp_priority_order":
        # Else torch moves cuDNN to the front at the first attention on some cards, whatever was set.
        said = {FLAGS["cuda.cudnn_sdp_deprioritized"].variable: "1", **said}
    return said


def _is_ours(variable: str) -> bool:
    """Tell whether torch knows nothing of a variable."""
    return variable.startswith("MLBACKENDS_")


def _step(flag: Flag, value: object, *, is_told_to_torch: bool) -> Step:
    data = as_data(flag, value)
    reads = reads_of(flag, value) if flag.of_torch else ()
    if is_told_to_torch or not flag.of_torch:
        return Step(flag.name, data, reads=reads)
    attribute, call, keyword = write_of(flag, value)
    return Step(flag.name, data, argument_of(flag, value), attribute, call, keyword, reads)
