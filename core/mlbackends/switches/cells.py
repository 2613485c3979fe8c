"""The cells behind the switches, what each switch reads from them and writes to them, and which contradict.

Most switches are one cell. Those of float32 precision are entries of a tree (operation, backend,
generic), and the older switches are bridges to several of its entries. Pure functions.
Source: torch 2.13, observed; tests/compat/test_precision_agrees.py walks both side by side.
"""

from collections.abc import Mapping
from itertools import combinations

from mlbackends.switches.kinds import Reduction
from mlbackends.switches.table import FLAGS, Flag

DEFAULT = "default"

Cells = dict[str, tuple[object, str]]
"""The value of each cell, and its origin."""

#: Beside torch's own words: tf32 unless a parent has a value, until the entry is written to.
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
#: The cells behind a switch that is not one cell of its own name.
_CELLS = {
    "cuda.matmul.allow_tf32": (CUDA_MATMUL, OLDER),
    OLDER: (OLDER, CUDA_MATMUL, MKLDNN_MATMUL),
    "cudnn.allow_tf32": ("cudnn.allow_tf32", _CONV, _RNN),
}
_SPLIT_K = "_split_k"
ADVICE = "set one of them alone"


def untouched() -> Cells:
    """Return the cells as they are where nothing is set."""
    cells = {cell: (FLAGS[cell].default, DEFAULT) for name in FLAGS for cell in cells_of(name)}
    return {**cells, _CONV: (_UNTOUCHED, DEFAULT), _RNN: (_UNTOUCHED, DEFAULT)}


def cells_of(name: str) -> tuple[str, ...]:
    """Return the cells behind a switch; the first one is its own."""
    if name.endswith(_SPLIT_K):
        return (name.removesuffix(_SPLIT_K),)
    return _CELLS.get(name, (name,))


def reading(cells: Cells, flag: Flag) -> object:
    """Return what reading a switch gives; PROBED where what is installed decides."""
    name = flag.name
    if name == "cuda.matmul.allow_tf32":
        return _older_cublas(cells)
    if name == "cudnn.allow_tf32":
        return _older_cudnn(cells)
    if name == OLDER:
        return _older_matmul(cells)
    value = cells[cells_of(name)[0]][0]
    if name in PARENTS:
        return _resolved(cells, name)
    if isinstance(value, tuple) and "reduction" in name:
        return value[1] if name.endswith(_SPLIT_K) else value[0]
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
    return word if word in getattr(FLAGS[cell].kind, "words", ()) else "none"


def _older_cublas(cells: Cells) -> bool:
    is_tf32 = _resolved(cells, CUDA_MATMUL) == "tf32"
    if is_tf32 != (cells[OLDER][0] != "highest"):
        raise _mixed(cells, "cuda.matmul.allow_tf32", CUDA_MATMUL)
    return is_tf32


def _older_cudnn(cells: Cells) -> bool:
    kept = cells["cudnn.allow_tf32"][0]
    for cell in (_CONV, _RNN):
        if (_resolved(cells, cell) == "tf32") != kept:
            raise _mixed(cells, "cudnn.allow_tf32", cell)
    return bool(kept)


def _older_matmul(cells: Cells) -> str:
    kept = str(cells[OLDER][0])
    cuda, mkldnn = _resolved(cells, CUDA_MATMUL), _resolved(cells, MKLDNN_MATMUL)
    if cuda == "tf32" and kept == "highest":
        raise _mixed(cells, OLDER, CUDA_MATMUL)
    if mkldnn in ("bf16", "tf32") and kept != {"bf16": "medium", "tf32": "high"}[mkldnn]:
        raise _mixed(cells, OLDER, MKLDNN_MATMUL)
    return kept


def _mixed(cells: Cells, older: str, newer: str) -> RuntimeError:
    return RuntimeError(
        f"{older} cannot tell: a mix of the legacy and new APIs was used, and {newer} is"
        f" {_resolved(cells, newer)!r}; read {newer}, or set only one of the two"
    )


def put(cells: Cells, flag: Flag, value: object, origin: str) -> None:
    """Write what has been checked into the cells behind a switch."""
    name = flag.name
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
    """Raise BadInput that names two switches which contradict each other; None is no value."""
    names = clashing(values)
    if names:
        from mlbackends.model.errors import BadInput

        raise BadInput(contradiction(values, names), ADVICE)


def clashing(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return two switches which contradict each other, () if none do; None is no value.

    Only one where it takes more than one other to undo it.
    """
    given = {name: value for name, value in values.items() if value is not None}
    found = lost(given)
    if not found:
        return ()
    pairs = combinations(given, 2)
    return next((pair for pair in pairs if lost({each: given[each] for each in pair})), (found,))


def contradiction(values: Mapping[str, object], names: tuple[str, ...]) -> str:
    """Return the sentence about `clashing` switches."""
    shown = " and ".join(f"{name}={FLAGS[name].kind.written(values[name])}" for name in names)
    if len(names) == 1:
        return f"{shown} does not hold beside the other switches that are set"
    return f"{shown} contradict each other"


def contradict(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Tell whether two sets of switches cannot hold together."""
    return bool(lost({**one, **other}))


def lost(values: Mapping[str, object]) -> str:
    """Return the first switch that does not read as it was set where all of them are; "" if none."""
    if values.get("opt_einsum.enabled") is False and "opt_einsum.strategy" in values:
        return "opt_einsum.strategy"
    cells = untouched()
    ordered = [flag for name, flag in FLAGS.items() if name in values]
    for flag in ordered:
        put(cells, flag, values[flag.name], "set")
    for flag in ordered:
        if flag.name == "mkldnn.allow_tf32":  # our own store has no cell for it
            continue
        value = values[flag.name]
        wanted = (
            value[0] if isinstance(flag.kind, Reduction) and isinstance(value, tuple) else value
        )
        try:
            found = reading(cells, flag)
        except RuntimeError:
            return flag.name
        if wanted not in (found, "none"):
            return flag.name
    return ""
