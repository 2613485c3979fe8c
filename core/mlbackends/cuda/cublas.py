"""`mlbackends.cuda.matmul`: which shortcuts cuBLAS may take for speed."""

from mlbackends.base.errors import suggestion
from mlbackends.switches import store
from mlbackends.switches.table import of_module


class cuBLASModule:  # noqa: N801  torch's name
    """The switches of matrix products on CUDA, each an attribute. An unknown name is an AttributeError."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        if name in _NAMES:
            return store.read(f"cuda.matmul.{name}")
        raise _unknown(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _NAMES or _NAMES[name].read_only:
            raise _unknown(name)
        store.write(f"cuda.matmul.{name}", value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_NAMES})


_NAMES = {switch.attribute: switch for switch in of_module("cuda.matmul")}


def _unknown(name: str) -> AttributeError:
    if name in _NAMES:
        base = name.removesuffix("_split_k")
        return AttributeError(f"Unknown attribute {name} to set; it is the second value of {base}")
    return AttributeError(f"Unknown attribute {name}{suggestion(name, tuple(_NAMES))}", name=name)
