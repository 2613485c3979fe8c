"""Modules whose switches are attributes where torch.backends has them so, and which refuse unknown names.

A module ends with `install(__name__, "CudnnModule")`. That gives it a class in which
every row of `mlbackends.switches.table` that is an attribute is a descriptor, and the functions `flags` and
`set_flags` where rows have a part in them. The module stays a module; `import mlbackends.cudnn` and
reload work as ever.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType

from mlbackends.base.errors import suggestion
from mlbackends.switches import store
from mlbackends.switches.startup import warn
from mlbackends.switches.table import NOT_IN_FLAGS, Switch, of_module

_INTERNAL = frozenset({"annotations", "availability", "install", "suggestion", "TYPE_CHECKING"})
_warned: set[str] = set()


class ContextProp:
    """A switch as an attribute: a getter without arguments, a setter with one; frozen with the others."""

    def __init__(self, getter: "Callable[[], object]", setter: "Callable[[object], object]") -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, obj: object, objtype: object) -> object:
        return self.getter()

    def __set__(self, obj: object, val: object) -> None:
        if store.frozen():
            raise RuntimeError(
                f"not allowed to set {getattr(obj, '__name__', obj)} flags after disable_global_flags;"
                " please use flags() context manager instead"
            )
        self.setter(val)


class UnfrozenProp(ContextProp):
    """A switch that may be assigned also after `disable_global_flags()`."""

    def __set__(self, obj: object, val: object) -> None:
        self.setter(val)


class _SwitchProp(ContextProp):
    """The descriptor of a row of the table; the sentence about it is its docstring."""

    __doc__ = property(lambda self: self.switch.doc)

    def __init__(self, switch: Switch) -> None:
        super().__init__(partial(store.read, switch.name), partial(store.write, switch.name))
        self.switch = switch

    def __set__(self, obj: object, val: object) -> None:
        if self.switch.freezable:
            super().__set__(obj, val)
        else:
            self.setter(val)


class PropModule(ModuleType):
    """A module with switches. m: the module that it wraps, from which other names are read."""

    def __init__(self, m: ModuleType, name: str) -> None:
        super().__init__(name)
        vars(self)["m"] = m

    def __getattr__(self, attr: str) -> object:
        names = vars(self)
        wrapped = names.get("m")
        if wrapped is not None and wrapped is not self and hasattr(wrapped, attr):
            return getattr(wrapped, attr)
        if attr == "m":
            return self
        source = names.get("_LAZY", {}).get(attr)
        if source is None:
            how = _how_to_set(self, attr) or _nearest_name(self, attr)
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {attr!r}{how}", name=attr, obj=self
            )
        # "mlbackends.cudnn", or "mlbackends_kernels.operations._call:einsum"
        import importlib

        path, _, attribute = source.partition(":")
        found: object = importlib.import_module(path)
        names[attr] = found = getattr(found, attribute) if attribute else found
        return found

    def __setattr__(self, attr: str, value: object) -> None:
        if not hasattr(type(self), attr) and not attr.startswith("__"):
            how = "" if callable(value) else _how_to_set(self, attr)
            is_new = attr not in vars(self) and not isinstance(value, ModuleType)
            # A switch that is a function, such as cuda.preferred_blas_library, would be lost.
            if callable(vars(self).get(attr)) and not callable(value):
                how = how or "; it is a function"
            if how or is_new:
                raise AttributeError(
                    f"module {self.__name__!r} has no switch {attr!r}{how or _nearest_name(self, attr)}",
                    name=attr,
                    obj=self,
                )
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        names = vars(self)
        rows = {switch.attribute for switch in _rows(self.__name__) if switch.reached == "attribute"}
        if "_PUBLIC" in names:
            own = {name for name in names if name.startswith("__")}
            return sorted({*names["_PUBLIC"], *rows, *own} - {"__warningregistry__"})
        return sorted(({*super().__dir__()} - _INTERNAL) | rows | {*names.get("_LAZY", ())})


class FP32Precision:
    """The precision of one operation of one backend, such as `mlbackends.cudnn.conv`.

    Has the one attribute fp32_precision: "none" (inherit), "ieee", "tf32", and for oneDNN "bf16".
    """

    def __init__(self, backend: str, op: str) -> None:
        self.backend = backend
        self.op = op

    @property
    def fp32_precision(self) -> str:
        """What is allowed inside, after inheritance."""
        return str(store.read(precision_name(self.backend, self.op)))

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        store.write(precision_name(self.backend, self.op), value)

    def __getattr__(self, name: str) -> object:
        near = suggestion(name, ("fp32_precision",))
        raise AttributeError(f"Unknown attribute {name}{near}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("backend", "op", "fp32_precision"):
            self.__getattr__(name)
        super().__setattr__(name, value)


def precision_name(backend: str, op: str) -> str:
    """Return the switch of an entry of the precision tree, by torch's names of backend and operation.

    Raises RuntimeError for a pair that there is not.
    """
    tree = {
        ("generic", "all"): "fp32_precision",
        ("mkldnn", "all"): "mkldnn.fp32_precision",
        ("cuda", "all"): "cudnn.fp32_precision",
        ("cuda", "matmul"): "cuda.matmul.fp32_precision",
        ("cuda", "conv"): "cudnn.conv.fp32_precision",
        ("cuda", "rnn"): "cudnn.rnn.fp32_precision",
        **{("mkldnn", name): f"mkldnn.{name}.fp32_precision" for name in ("matmul", "conv", "rnn")},
    }
    if (backend, op) not in tree:
        raise RuntimeError(f"the operation {op!r} of {backend!r} has no precision")
    return tree[backend, op]


def install(name: str, class_name: str, **more: object) -> None:
    """Give a module its switches, and `flags` and `set_flags` where the table has parts of them.

    class_name: what torch calls the module's class. It is bound in the module too, as there.
    more: further descriptors of the class, for attributes that are not switches.
    """
    module = sys.modules[name]
    rows = _rows(name)
    doc = f"The class of the module {name}: its switches."
    body: dict[str, object] = {"__module__": name, "__doc__": doc}
    for switch in rows:
        if switch.reached == "attribute":
            body[switch.attribute] = _SwitchProp(switch)
    built = type(class_name, (PropModule,), {**body, **more})
    names = vars(module)
    names[class_name] = built
    inside = [switch for switch in rows if switch.inside_flags is not NOT_IN_FLAGS]
    if inside:
        names.setdefault("set_flags", set_flags_of(name, inside))
        names.setdefault("flags", flags_of(name, inside))
    module.__class__ = built


def _rows(name: str) -> "list[Switch]":
    """Return the switches of a module, by its full name; () for a module of another package."""
    return of_module(name.removeprefix("mlbackends").removeprefix("."))


def _how_to_set(module: ModuleType, name: str) -> str:
    """Return how a switch that is not an attribute is set, as the end of a sentence; "" for other names."""
    for switch in _rows(module.__name__):
        if switch.attribute == name and switch.reached != "attribute":
            from mlbackends.switches.listing import how_to_set

            return f"; {how_to_set(switch)}"
    return ""


def _nearest_name(module: ModuleType, name: str) -> str:
    return suggestion(name, tuple(known for known in dir(module) if not known.startswith("_")))


# ---- flags() and set_flags() ------------------------------------------------


def set_flags_of(module: str, rows: "list[Switch]") -> "Callable[..., object]":
    """Return `set_flags` of a module: sets what is not None, all or nothing, and returns the old values."""
    parts = [f"_{switch.attribute}={set_flags_default(switch)!r}" for switch in rows]
    if len(rows) == 1 and rows[0].reached == "flags":
        parts = [f"_{rows[0].attribute}"]  # nnpack's has no default

    def changed(values: "tuple[object, ...]") -> "tuple[object, ...]":
        return store.swap(tuple(switch.name for switch in rows), _settings(rows, values))

    doc = "Set switches, all or none; None leaves one as it is. Returns the values before."
    return _function("set_flags", parts, changed, doc, module)


def flags_of(module: str, rows: "list[Switch]") -> "Callable[..., object]":
    """Return `flags` of a module: a context manager that sets, and restores exactly what it found."""
    parts = [f"{switch.attribute}={switch.inside_flags!r}" for switch in rows]

    @contextmanager
    def scope(values: "tuple[object, ...]") -> Iterator[None]:
        settings = _settings(rows, values)
        # flags() sets TF32 of oneDNN to True by default; a warning on each call would be noise.
        if settings.get("mkldnn.allow_tf32") is True:
            del settings["mkldnn.allow_tf32"]
        with store.applied(settings):
            _warn_of_disabling(module, rows, values)
            yield

    doc = "Set switches for a block, and put back what was found. What is not given gets the default shown."
    return _function("flags", parts, scope, doc, module)


def _function(
    name: str, parts: "list[str]", body: "Callable[..., object]", doc: str, module: str
) -> "Callable[..., object]":
    """Return a function with these parameters, which passes their values to `body` as one tuple."""
    names = ", ".join(part.partition("=")[0] for part in parts)
    space: dict[str, object] = {"body": body, "__name__": module}
    # As namedtuple does it: a signature that is real for inspect, help() and error messages.
    exec(f"def {name}({', '.join(parts)}):\n    return body(({names},))", space)  # noqa: S102
    function = space[name]
    assert callable(function)
    function.__module__ = module
    function.__doc__ = doc
    return function


def set_flags_default(switch: Switch) -> object:
    """Torch's set_flags leaves everything but fp32_precision as it is, which it sets to none."""
    return "none" if switch.attribute == "fp32_precision" else None


def _settings(rows: "list[Switch]", values: "tuple[object, ...]") -> "dict[str, object]":
    """Return the switches that a call sets. Raises ValueError for a strategy without opt_einsum."""
    settings = {
        switch.name: value
        for switch, value in zip(rows, values, strict=True)
        if value is not None or switch.reached == "flags"  # nnpack's, which takes no None
    }
    if "opt_einsum.strategy" in settings and not settings.get(
        "opt_einsum.enabled", store.read("opt_einsum.enabled")
    ):
        raise ValueError(
            "opt_einsum is not enabled, so a strategy has no meaning; set enabled to True as well"
        )
    # Without cuDNN and a limit, flags() ignores it, as torch does.
    if "cudnn.benchmark_limit" in settings and store.read("cudnn.benchmark_limit") is None:
        del settings["cudnn.benchmark_limit"]
    return settings


def _warn_of_disabling(module: str, rows: "list[Switch]", values: "tuple[object, ...]") -> None:
    """Warn once a module that flags() switches the library off unless enabled=True is given."""
    named = {switch.attribute: value for switch, value in zip(rows, values, strict=True)}
    changed = [
        switch.attribute
        for switch in rows
        if switch.attribute != "enabled" and named[switch.attribute] != switch.inside_flags
    ]
    if named.get("enabled") is not False or not changed or module in _warned:
        return
    _warned.add(module)
    short = module.removeprefix("mlbackends.")
    warn(
        f"{short}.flags({changed[0]}={named[changed[0]]!r}) also turns {short} off inside the block, since"
        " enabled is False there unless given, as in torch.backends; pass enabled=True to keep it on"
    )


# ---- the functions of mlbackends itself -------------------------------------


def disable_global_flags() -> None:
    """Forbid bare assignment to the switches of cudnn, mkldnn and miopen, and to fp32_precision.

    This cannot be undone in the process. `flags()` still works.
    """
    store.freeze()


def flags_frozen() -> bool:
    """Return whether bare assignment is forbidden here and now."""
    return store.frozen()


def get_float32_matmul_precision() -> str:
    """Return "highest", "high" or "medium".

    Raises RuntimeError if fp32_precision was set to a value that has no such word.
    """
    return str(store.read("float32_matmul_precision"))


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision inside float32 products: "highest", "high" (TF32) or "medium" (bfloat16 in oneDNN).

    Raises RuntimeError for another word; torch only warns, and goes on as before.
    """
    store.write("float32_matmul_precision", precision)
