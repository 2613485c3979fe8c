"""The value of each switch, and where it came from.

Per process: the values. Every thread sees them, and each read or write of one or several is whole.
Per context (thread or asyncio task): whether the freeze of `disable_global_flags()` is lifted.

A value comes from, in this order: what was set in Python; the environment; the file that the variable
MLBACKENDS_FLAGS names; the default. Variables are read once, at the first touch of any switch.

Behind the names stand cells. Most switches are one cell; those of float32 precision are entries of a
tree (operation, backend, generic), and the older switches are bridges to several of its cells.
Source: torch 2.13, observed; see `mlbackends.deviations` for where we differ.
"""

import os
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mlbackends.flag_table import FLAGS, PROBED, Flag

FILE_VARIABLE = "MLBACKENDS_FLAGS"

DEFAULT, ENVIRONMENT, FILE, SET = "default", "environment", "file", "set"

#: Beside torch's own words: tf32 unless a parent says otherwise, until somebody writes to the entry.
_UNTOUCHED = "default"
_GENERIC = "fp32_precision"
#: Every entry of the tree, and the one it inherits from.
_PARENTS = {
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
_CUDA_MATMUL, _MKLDNN_MATMUL = "cuda.matmul.fp32_precision", "mkldnn.matmul.fp32_precision"
_CONV, _RNN = "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"
_OLDER = "float32_matmul_precision"
#: What the older switch says to cuBLAS and to oneDNN.
_MEANINGS = {"highest": ("ieee", "ieee"), "high": ("tf32", "tf32"), "medium": ("tf32", "bf16")}
#: The cells behind a switch that is not one cell of its own name.
_CELLS = {
    "cuda.matmul.allow_tf32": (_CUDA_MATMUL, _OLDER),
    _OLDER: (_OLDER, _CUDA_MATMUL, _MKLDNN_MATMUL),
    "cudnn.allow_tf32": ("cudnn.allow_tf32", _CONV, _RNN),
}
_SPLIT_K = "_split_k"

#: In place of a value: the variable says that nothing is to be changed.
_NOTHING = object()

_lock = RLock()
_cells: dict[str, tuple[object, str]] = {}
_problems: list[str] = []
_frozen = False
_lifted: ContextVar[bool] = ContextVar("mlbackends_freeze_lifted", default=False)


def read(name: str) -> object:
    """Return the value of a switch, as torch's getter of that name returns it.

    Raises UnknownName, and RuntimeError where an older switch has no word for the state.
    """
    flag = _flag(name)
    with _lock:
        _load()
        return _value(flag)


def origin(name: str) -> str:
    """Return where the value comes from: default, environment, file or set.

    An entry of the precision tree that inherits has the origin of the entry that decides.
    """
    flag = _flag(name)
    with _lock:
        _load()
        cell = _cells_of(flag.name)[0]
        if cell in _PARENTS:
            cell = _deciding(cell)
        return _cells[cell][1]


def write(name: str, value: object) -> None:
    """Set one switch. Raises what torch raises for a value that it does not take."""
    write_all({name: value})


def write_all(values: "dict[str, object]", origin: str = SET) -> None:
    """Set several switches, all or none of them."""
    flags = [_flag(name) for name in values]
    with _lock:
        _load()
        checked = [(flag, _checked(flag, values[flag.name])) for flag in flags]
        for flag, value in checked:
            _put(_cells, flag, value, origin)


@contextmanager
def restored(*names: str) -> Iterator[None]:
    """Put the named switches back, on leaving the block, exactly as they were found."""
    cells = [cell for name in names for cell in _cells_of(_flag(name).name)]
    with _lock:
        _load()
        found = {cell: _cells[cell] for cell in cells}
    try:
        yield
    finally:
        with _lock:
            _cells.update(found)


@contextmanager
def applied(values: "dict[str, object]") -> Iterator[None]:
    """Set several switches for the block, all or none, and put them back as they were found."""
    with _lock:
        _load()
        with _entering(values) as found:
            pass
    try:
        yield
    finally:
        with _lock:
            _cells.update(found)


@contextmanager
def _entering(values: "dict[str, object]") -> "Iterator[dict[str, tuple[object, str]]]":
    found = {cell: _cells[cell] for name in values for cell in _cells_of(_flag(name).name)}
    write_all(values)
    yield found


def freeze() -> None:
    """Forbid bare assignment to the freezable switches, for the life of the process."""
    global _frozen  # noqa: PLW0603  it is the process's own
    _frozen = True


def frozen() -> bool:
    """Tell whether bare assignment to a freezable switch is forbidden here and now."""
    return _frozen and not _lifted.get()


@contextmanager
def freeze_lifted() -> Iterator[None]:
    """Allow bare assignment inside the block, in this thread or task alone."""
    token = _lifted.set(True)
    try:
        yield
    finally:
        _lifted.reset(token)


def problems() -> list[str]:
    """Return what was wrong with the variables and the file, one sentence each; those were ignored."""
    with _lock:
        _load()
        return list(_problems)


def environment() -> "dict[str, str]":
    """Return the variables with which a new process starts with these values; {} where all are defaults.

    Read in the order of the table, they build the same cells: older switches first, then the entries.
    """
    with _lock:
        _load()
        wanted = dict(_cells)
    made = _untouched()
    found: dict[str, str] = {}
    for flag in FLAGS.values():
        value = _to_say(flag, made, wanted)
        if value is not _NOTHING:
            _put(made, flag, value, ENVIRONMENT)
            found.update([_said(flag, value)])
    return found


def _to_say(
    flag: Flag,
    made: "dict[str, tuple[object, str]]",
    wanted: "dict[str, tuple[object, str]]",
) -> object:
    """Return what must be said of a switch to get from the cells `made` to those `wanted`."""
    if flag.read_only:
        return _NOTHING
    # The variable of this one can say only True: that, and nothing of oneDNN.
    both = tuple(wanted[cell][0] for cell in (_CUDA_MATMUL, _OLDER, _MKLDNN_MATMUL))
    by_its_variable = both == ("tf32", "high", "none")
    if flag.name == "cuda.matmul.allow_tf32":
        return True if by_its_variable else _NOTHING
    if flag.name == _OLDER and by_its_variable:
        return _NOTHING
    cell = _cells_of(flag.name)[0]
    return _NOTHING if made[cell][0] == wanted[cell][0] else wanted[cell][0]


def _said(flag: Flag, value: object) -> tuple[str, str]:
    """Return the variable that says a value, torch's own where it can, and its text."""
    text = flag.kind.written(value)
    for variable, meanings in flag.variables.items():
        for short, meaning in meanings.items():
            if meaning == text:
                return variable, short
        if not meanings:
            return variable, text
    raise AssertionError(flag.name)


def load_file(path: str) -> None:
    """Take the switches of a TOML file, all or none. Raises BadInput with file, line and key."""
    from mlbackends import flag_files

    write_all(flag_files.read(path), FILE)


def forget() -> None:
    """Go back to the start: the next touch reads the environment again. For tests."""
    global _frozen  # noqa: PLW0603
    with _lock:
        _cells.clear()
        _problems.clear()
        _frozen = False


def _flag(name: str) -> Flag:
    flag = FLAGS.get(name)
    if flag is None:
        from mlbackends.model.errors import UnknownName

        raise UnknownName("switch", name, tuple(FLAGS))
    return flag


def _cells_of(name: str) -> tuple[str, ...]:
    if name.endswith(_SPLIT_K):
        return (name.removesuffix(_SPLIT_K),)
    return _CELLS.get(name, (name,))


# ---- reading ----------------------------------------------------------------


def _value(flag: Flag) -> object:
    name = flag.name
    if name == "cuda.matmul.allow_tf32":
        return _older_cublas()
    if name == "cudnn.allow_tf32":
        return _older_cudnn()
    if name == _OLDER:
        return _older_matmul()
    value = _cells[_cells_of(name)[0]][0]
    if name in _PARENTS:
        return _resolved(name)
    if value is PROBED:
        from mlbackends import flag_conditions

        return flag_conditions.default(name)
    if isinstance(value, tuple) and "reduction" in name:
        return value[1] if name.endswith(_SPLIT_K) else value[0]
    return value


def _deciding(cell: str) -> str:
    """Return the entry whose word counts for `cell`: itself, or the nearest parent that has one."""
    for entry in _line(cell):
        if _cells[entry][0] not in ("none", _UNTOUCHED):
            return entry
    return cell


def _line(cell: str) -> Iterator[str]:
    while cell:
        yield cell
        cell = _PARENTS[cell]


def _resolved(cell: str) -> str:
    word = str(_cells[_deciding(cell)][0])
    if word == _UNTOUCHED:
        return "tf32"
    # bf16 that CUDA would inherit from the generic entry, and cannot do.
    return word if word in getattr(FLAGS[cell].kind, "words", ()) else "none"


def _older_cublas() -> bool:
    is_tf32 = _resolved(_CUDA_MATMUL) == "tf32"
    if is_tf32 != (_cells[_OLDER][0] != "highest"):
        raise _mixed("cuda.matmul.allow_tf32", _CUDA_MATMUL)
    return is_tf32


def _older_cudnn() -> bool:
    kept = _cells["cudnn.allow_tf32"][0]
    for cell in (_CONV, _RNN):
        if (_resolved(cell) == "tf32") != kept:
            raise _mixed("cudnn.allow_tf32", cell)
    return bool(kept)


def _older_matmul() -> str:
    kept = str(_cells[_OLDER][0])
    cuda, mkldnn = _resolved(_CUDA_MATMUL), _resolved(_MKLDNN_MATMUL)
    if cuda == "tf32" and kept == "highest":
        raise _mixed(_OLDER, _CUDA_MATMUL)
    if mkldnn in ("bf16", "tf32") and kept != {"bf16": "medium", "tf32": "high"}[mkldnn]:
        raise _mixed(_OLDER, _MKLDNN_MATMUL)
    return kept


def _mixed(older: str, newer: str) -> RuntimeError:
    return RuntimeError(
        f"{older} cannot tell: a mix of the legacy and new APIs was used, and {newer} is"
        f" {_resolved(newer)!r}; read {newer}, or set only one of the two"
    )


# ---- writing ----------------------------------------------------------------


def _checked(flag: Flag, value: object) -> object:
    from mlbackends import flag_conditions

    flag_conditions.refuse(flag, value)
    if value is None and flag.default in (None, PROBED):
        return None if flag.default is None else PROBED
    return flag.kind.checked(flag.name, value)


def _put(cells: "dict[str, tuple[object, str]]", flag: Flag, value: object, origin: str) -> None:
    """Write what has been checked into the cells behind a switch."""
    name = flag.name
    if name == "mkldnn.allow_tf32":
        return  # only builds for Intel GPUs have it; flag_conditions has warned
    if name == "cuda.matmul.allow_tf32":
        cells[_CUDA_MATMUL] = ("tf32" if value else "ieee", origin)
        cells[_OLDER] = ("high" if value else "highest", origin)
    elif name == "cudnn.allow_tf32":
        for cell in (_CONV, _RNN):
            cells[cell] = ("tf32" if value else "none", origin)
        cells[name] = (value, origin)
    elif name == _OLDER:
        cells[name] = (value, origin)
        cuda, mkldnn = _MEANINGS[str(value)]
        cells[_CUDA_MATMUL] = (cuda, origin)
        cells[_MKLDNN_MATMUL] = (mkldnn, origin)
    else:
        cells[name] = (value, origin)


# ---- the first values -------------------------------------------------------


def _load() -> None:
    """Fill the cells once: defaults, then the file, then the environment. Called with the lock held."""
    if _cells:
        return
    _cells.update(_untouched())
    path = os.environ.get(FILE_VARIABLE, "")
    if path:
        _take_file(path)
    for flag in FLAGS.values():
        _take_variable(flag)
    if _problems:
        import warnings

        for problem in _problems:
            warnings.warn(problem, UserWarning, stacklevel=4)


def _untouched() -> "dict[str, tuple[object, str]]":
    """Return the cells as they are where nobody has said anything."""
    cells = {cell: (FLAGS[cell].default, DEFAULT) for name in FLAGS for cell in _cells_of(name)}
    return {**cells, _CONV: (_UNTOUCHED, DEFAULT), _RNN: (_UNTOUCHED, DEFAULT)}


def _take_file(path: str) -> None:
    from mlbackends import flag_files
    from mlbackends.model.errors import MlBackendsError

    try:
        for name, value in flag_files.read(path).items():
            _put(_cells, FLAGS[name], value, FILE)
    except MlBackendsError as error:
        _problems.append(f"Ignoring the file that {FILE_VARIABLE} names: {error}")


def _take_variable(flag: Flag) -> None:
    """Read a switch's variables. One that holds nonsense is ignored, as in torch, and told."""
    for variable, meanings in flag.variables.items():
        text = os.environ.get(variable)
        if text is None or flag.read_only:
            continue
        try:
            value = _parsed(flag, text, meanings)
        except ValueError as error:
            kind = "boolean flag" if flag.kind.name == "bool" or meanings else "flag"
            _problems.append(f"Ignoring invalid value for {kind} {variable}: {text}; {error}.")
            continue
        if value is not _NOTHING:
            _put(_cells, flag, value, ENVIRONMENT)


def _parsed(flag: Flag, text: str, meanings: "dict[str, str]") -> object:
    if meanings:
        if text not in meanings:
            raise ValueError("valid values are 0 or 1")
        text = meanings[text]
    if meanings and not text:
        return _NOTHING
    value = flag.kind.parsed(text)
    # torch starts at "none" then, not at the "ieee" that the assignment would mean.
    return _NOTHING if flag.name == "cuda.matmul.allow_tf32" and value is False else value


def _after_fork() -> None:
    """Give a child a lock of its own: a thread that held ours does not exist there."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
