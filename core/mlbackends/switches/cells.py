"""The cells behind the switches, what each switch reads from them and writes to them, and which contradict.

Most switches are one cell. Those of float32 precision are entries of a tree (operation, backend,
generic), and the older switches are bridges to several of its entries. Pure functions.
Source: torch 2.15, observed; tests/compat/test_precision_agrees.py walks both side by side.
"""

from collections.abc import Mapping
from itertools import combinations

from mlbackends.base.errors import BadInput
from mlbackends.switches.kinds import Reduction
from mlbackends.switches.table import SWITCHES, Switch

DEFAULT = "default"

#: The value of each cell, and its origin.
Cells = dict[str, tuple[object, str]]

#: Not a word of torch: tf32 unless a parent has a value, until the entry is written to.
_UNTOUCHED = "default"
_GENERIC = "fp32_precision"
#: Every entry of the tree, and the one it inherits from.
PARENTS = {
    _GENERIC: "",
    "mkldnn.fp32_precision": _GENERIC,
    "mkldnn.matmul.fp32_precision": "mkldnn.fp32_precision",
    "mkldnn.conv.fp32_precision": "mkldnn.fp32_precision",
    "mkldnn.rnn.fp32_precision": "mkldnn.fp32_precision",
    "cudnn.fp32_precision": _GENERIC,
    "cuda.matmul.fp32_precision": "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision": "cudnn.fp32_precision",
    "cudnn.rnn.fp32_precision": "cudnn.fp32_precision",
}
CUDA_MATMUL, MKLDNN_MATMUL = "cuda.matmul.fp32_precision", "mkldnn.matmul.fp32_precision"
_CONV, _RNN = "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"
OLDER = "float32_matmul_precision"
#: What the older switch means for cuBLAS and for oneDNN.
_MEANINGS = {"highest": ("ieee", "ieee"), "high": ("tf32", "tf32"), "medium": ("tf32", "bf16")}
#: The cells behind a switch that is not simply the cell with its name.
_CELLS = {
    "cuda.matmul.allow_tf32": (CUDA_MATMUL, OLDER),
    OLDER: (OLDER, CUDA_MATMUL, MKLDNN_MATMUL),
    "cudnn.allow_tf32": ("cudnn.allow_tf32", _CONV, _RNN),
}
_SPLIT_K = "_split_k"
ADVICE = "set one of them alone"


def untouched() -> Cells:
    """Return the cells as they are where nothing is set."""
    cells = {cell: (SWITCHES[cell].default, DEFAULT) for name in SWITCHES for cell in cells_of(name)}
    return {**cells, _CONV: (_UNTOUCHED, DEFAULT), _RNN: (_UNTOUCHED, DEFAULT)}


def cells_of(name: str) -> tuple[str, ...]:
    """Return the cells behind a switch; the first one is its own."""
    if name.endswith(_SPLIT_K):
        return (name.removesuffix(_SPLIT_K),)
    return _CELLS.get(name, (name,))


def reading(cells: Cells, switch: Switch) -> object:
    """Return what reading a switch gives; PROBED where what is installed decides.

    Raises RuntimeError where an older switch has no word for what newer ones were set to.
    """
    name = switch.name
    value = cells[cells_of(name)[0]][0]
    if name in PARENTS:
        return _resolved(cells, name)
    if name not in _CELLS:
        if isinstance(value, tuple) and "reduction" in name:
            return value[name.endswith(_SPLIT_K)]
        return value
    if name == "cuda.matmul.allow_tf32":
        value = _resolved(cells, CUDA_MATMUL) == "tf32"
        mixed = [CUDA_MATMUL] if value != (cells[OLDER][0] != "highest") else []
    elif name == "cudnn.allow_tf32":
        mixed = [cell for cell in (_CONV, _RNN) if (_resolved(cells, cell) == "tf32") != value]
    # Else it is the older switch of float32 products.
    elif _resolved(cells, CUDA_MATMUL) == ("tf32" if value == "highest" else "bfx9"):
        mixed = [CUDA_MATMUL]
    else:
        word = {"bf16": "medium", "tf32": "high"}.get(_resolved(cells, MKLDNN_MATMUL), value)
        mixed = [MKLDNN_MATMUL] if word != value else []
    if mixed:
        newer = mixed[0]
        raise RuntimeError(
            f"{name} has no value: a mix of the legacy and new APIs was used, and {newer} is"
            f" {_resolved(cells, newer)!r}; read {newer}, or set only one of the two"
        )
    return value


def deciding(cells: Cells, cell: str) -> str:
    """Return the entry whose value counts for `cell`: itself, or the nearest parent that has one."""
    entry = cell
    while entry:
        if cells[entry][0] not in ("none", _UNTOUCHED):
            return entry
        entry = PARENTS[entry]
    return cell


def _resolved(cells: Cells, cell: str) -> str:
    word = str(cells[deciding(cells, cell)][0])
    if word == _UNTOUCHED:
        return "tf32"
    # bf16 that CUDA would inherit from the generic entry, and cannot do.
    return word if word in getattr(SWITCHES[cell].kind, "words", ()) else "none"


def put(cells: Cells, switch: Switch, value: object, origin: str) -> None:
    """Write what has been checked into the cells behind a switch."""
    name = switch.name
    if name == "mkldnn.allow_tf32":
        return  # only builds for Intel GPUs have it; conditions.refuse has warned
    if name == "cuda.matmul.allow_tf32":
        cells[CUDA_MATMUL] = ("tf32" if value else "ieee", origin)
        cells[OLDER] = ("high" if value else "highest", origin)
    elif name == "cudnn.allow_tf32":
        for cell in (_CONV, _RNN):
            cells[cell] = ("tf32" if value else "none", origin)
        cells[name] = (value, origin)
    elif name == OLDER:
        cells[name] = (value, origin)
        cuda, mkldnn = _MEANINGS[str(value)]
        cells[CUDA_MATMUL] = (cuda, origin)
        cells[MKLDNN_MATMUL] = (mkldnn, origin)
    else:
        cells[name] = (value, origin)


def refuse_contradictions(values: Mapping[str, object]) -> None:
    """Raise BadInput that names two switches which contradict each other; None does not count as a value."""
    sentence, _ = contradiction(values)
    if sentence:
        raise BadInput(sentence, ADVICE)


def contradiction(values: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Return a sentence on two switches that contradict each other, and their names; "" and () if none do.

    None does not count as a value. Only one is named if several others together undo it.
    """
    found = lost(values)
    if not found:
        return "", ()
    pairs = combinations(values, 2)
    names = next((pair for pair in pairs if lost({name: values[name] for name in pair})), (found,))
    shown = " and ".join(f"{name}={SWITCHES[name].kind.written(values[name])}" for name in names)
    if len(names) == 1:
        return f"{shown} has no effect together with the other switches that are set", names
    return f"{shown} contradict each other", names


def lost(values: Mapping[str, object]) -> str:
    """Return the first switch that reads differently when all are set, "" if none; None does not count."""
    if values.get("opt_einsum.enabled") is False and values.get("opt_einsum.strategy") is not None:
        return "opt_einsum.strategy"
    cells = untouched()
    # Our own store has no cell for mkldnn.allow_tf32.
    ordered = [
        switch
        for name, switch in SWITCHES.items()
        if values.get(name) is not None and name != "mkldnn.allow_tf32"
    ]
    for switch in ordered:
        put(cells, switch, values[switch.name], "set")
    for switch in ordered:
        value = values[switch.name]
        if isinstance(switch.kind, Reduction) and isinstance(value, tuple):
            value = value[0]
        try:
            if value not in (reading(cells, switch), "none"):
                return switch.name
        except RuntimeError:
            return switch.name
    return ""
