"""What stands in for kernels and packages that are not installed, so that an engine chooses without a GPU."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Protocol

#: Packages that are not stood in for.
KEPT = ("torch", *sys.stdlib_module_names)


class Stand(type(Protocol)):  # type: ignore[misc]
    """The type of what stands in for a name: it can be called, subscripted, joined and inherited from."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_options: Any) -> Any:
        return super().__new__(cls, name, bases, body)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "stands_in" not in vars(cls):
            return super().__call__(*args, **kwargs)
        return args[0] if len(args) == 1 and callable(args[0]) else stand(cls.__name__)

    def register(cls, *_names: Any, **_options: Any) -> Any:
        return lambda decorated: decorated

    def __getitem__(cls, _key: Any) -> Any:
        return cls

    def __or__(cls, _other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __gt__(cls, _other: Any) -> bool:
        return False


def stand(name: str) -> Any:
    return Stand(name, (), {"stands_in": True, "__doc__": ""})


class StandModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = stand(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for an engine's modules that are not in real, and for packages that are not installed.

    real: the modules that run as they are, all of the engine if it is empty; a name with a dot at its end is
    for all below it.
    """

    def __init__(self, package: str, real: tuple[str, ...], root: str, *, is_last: bool) -> None:
        self.package, self.real, self.root, self.is_last = package, real, root, is_last

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        top = name.split(".", maxsplit=1)[0]
        if top == self.package:
            below = tuple(prefix for prefix in self.real if prefix.endswith("."))
            if self.is_last or not self.real or name in self.real or name.startswith(below):
                return None
        elif not self.is_last or top in KEPT or not self.is_for_the_engine():
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        folder = os.path.join(self.root, *name.split("."))
        spec.submodule_search_locations = [folder] if top == self.package else []
        return spec

    def is_for_the_engine(self) -> bool:
        """Return whether the engine imports, rather than another package that tries what is installed."""
        frame = sys._getframe(2)
        while "importlib" in frame.f_code.co_filename and frame.f_back:
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(os.path.join(self.root, self.package))

    def create_module(self, spec: Any) -> ModuleType:
        return StandModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(package: str, real: tuple[str, ...]) -> None:
    """Stand in for what an engine imports besides the modules that decide."""
    found = importlib.util.find_spec(package)
    assert found, f"{package} is not installed"
    assert found.origin
    root = os.path.dirname(os.path.dirname(found.origin))
    sys.meta_path.insert(0, Finder(package, real, root, is_last=False))
    sys.meta_path.append(Finder(package, real, root, is_last=True))
