"""From values to the way each gets into the program: by a variable, by a call into torch, or by both.

Everything is in the order of the table, in which the older switches precede the entries that they
bridge to, so that torch ends where our own store ends.
Source of how torch is set and read: torch 2.13, observed.
"""

from collections.abc import Mapping

from msgspec import Struct

from mlbackends.switches.cells import cells_of, refuse_contradictions
from mlbackends.switches.files import as_data
from mlbackends.switches.kinds import Permutation, Reduction
from mlbackends.switches.startup import OUR_PREFIX, variable_of
from mlbackends.switches.table import SWITCHES, Switch

_BACKENDS = "torch.backends."
#: Where bare assignment does something else than its name suggests: it writes the generic entry (mkldnn), or
#: shadows the module's state (opt_einsum). The functions and their arguments do it right.
_BY_FUNCTION = {
    "mkldnn.fp32_precision": ("mkldnn.set_flags", "_fp32_precision"),
    "opt_einsum.enabled": ("opt_einsum.set_flags", "_enabled"),
    "opt_einsum.strategy": ("opt_einsum.set_flags", "_strategy"),
}
#: What opt_einsum.set_flags takes; the others can only be assigned.
_STRATEGIES = ("auto", "greedy", "optimal")
_CAPABILITY = f"{_BACKENDS}cpu.get_cpu_capability"


class Step(Struct, frozen=True, omit_defaults=True):
    """One switch as the import hook applies it, which knows nothing of our table.

    value: as JSON and our files have it; argument: as torch takes it. attribute: what that is
    assigned to; or call: the function that gets it, by the name `keyword` where that is not "".
    Neither: a variable has set it, and it is only read back. reads: each a path, and the value that
    must be read there then, None for any.
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
    """Return how each value gets into the program.

    values: by the names of switches, each checked; None leaves a switch to the library.
    Raises BadInput where two of them contradict each other.
    """
    pairs = [(switch, values[name]) for name, switch in SWITCHES.items() if name in values]
    refuse_contradictions({switch.name: value for switch, value in pairs})
    variables: dict[str, str | None] = {}
    for switch, _ in pairs:
        for cell in cells_of(switch.name):
            variables.update(dict.fromkeys(SWITCHES[cell].variables))
        variables.update(dict.fromkeys(switch.variables))
    steps = []
    for switch, value in pairs:
        if value is None:
            continue
        variable, text = variable_of(switch, value)
        if switch.name == "cuda.matmul.allow_tf32" and value is False:
            # 0 in torch's variable means "none", and the assignment means "ieee".
            variable, text = SWITCHES["cuda.matmul.fp32_precision"].variable, "ieee"
        if switch.name == "cuda.sdp_priority_order":
            # Else torch moves cuDNN to the front at the first attention on some cards, whatever was set.
            variables[SWITCHES["cuda.cudnn_sdp_deprioritized"].variable] = "1"
        variables[variable] = text
        if not switch.of_torch:
            continue
        data, reads = as_data(switch, value), reads_of(switch, value)
        if variable.startswith(OUR_PREFIX):
            attribute, call, keyword = "", switch.torch_set, ""
            function, name = _BY_FUNCTION.get(switch.name, ("", ""))
            if not call and function and (name != "_strategy" or value in _STRATEGIES):
                call, keyword = f"{_BACKENDS}{function}", name
            elif not call:
                attribute = f"{_BACKENDS}{switch.name}"
            # An order as numbers, a bool where no second one is needed.
            argument = list(value) if isinstance(value, tuple) else value
            if isinstance(switch.kind, Reduction) and isinstance(value, tuple) and value[1]:
                argument = value[0]
            steps.append(Step(switch.name, data, argument, attribute, call, keyword, reads))
        elif reads:
            steps.append(Step(switch.name, data, reads=reads))
    return Plan(variables, tuple(steps))


def reads_of(switch: Switch, value: object) -> tuple[tuple[str, object], ...]:
    """Return what to read back and the value to find there, () if torch cannot report it.

    "none" means what an entry inherits, so any value may be read.
    """
    if switch.name == "cpu.capability":
        word = str(value)
        return ((_CAPABILITY, {"zvector": "Z VECTOR"}.get(word, word.upper())),)
    # The workspace is read by a call that starts CUDA, after which the program could not fork.
    if switch.reached == "variable" or "workspace" in switch.name:
        return ()
    path = switch.torch_get or f"{_BACKENDS}{switch.name}"
    if isinstance(switch.kind, Reduction) and isinstance(value, tuple):
        split = f"{switch.name}_split_k"
        second = ((f"{_BACKENDS}{split}", value[1]),) if split in SWITCHES and not value[1] else ()
        return ((path, value[0]), *second)
    if isinstance(switch.kind, Permutation) and isinstance(value, tuple):
        return ((path, list(value)),)
    return ((path, None if value == "none" else value),)
