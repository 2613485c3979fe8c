"""The import hook of `backends run`: has the switches applied when torch has been imported.

Python imports it at its start, since its folder is in PYTHONPATH. It imports nothing of ours: the program
may run any Python from 3.6 on, and mlbackends need not be installed. A program that never imports torch
pays for this file and for one comparison an import.

It takes its folder off sys.path, and makes way for the sitecustomize that Python would have found
without it. The variables stay, so that children of the program get the switches too.
"""

import os
import sys

TYPE_CHECKING = False  # typing's own would cost every program its import
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
#: Read at the start: a program may empty its environment before it imports torch.
_STEPS = os.environ.get("MLBACKENDS_CARRIED", "")


class _Finder:
    """Lets the other finders look for torch, and watches the loader that they find."""

    def find_spec(
        self, name: str, path: "Any" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "torch" or self not in sys.meta_path:
            return None
        # The finders before this one have not found it.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None:  # else a folder of that name, which is not torch
                    spec.loader = _Watched(spec)  # type: ignore[assignment]
                return spec
        return None


class _Watched:
    """Torch's loader, which applies the switches behind it. The import's lock is held all the while."""

    def __init__(self, spec: "ModuleSpec") -> None:
        self._spec = spec
        self._loader: Any = spec.loader

    def __getattr__(self, name: str) -> "Any":
        if name == "_loader":  # while a copy is put together
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: "ModuleType") -> None:
        # What torch sees is the loader that was found: it gives sources and data.
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # Once a process: what the program sets later, a reload must not undo.
        if _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)
            _apply(sys.modules.get("torch", module))


def _apply(torch: "ModuleType") -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(_FOLDER, "applying.py")
    spec: Any = spec_from_file_location("_mlbackends_applying", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.apply(torch, _STEPS)


def _make_way() -> None:
    """Import the next sitecustomize on the path, if there is one, in place of this one."""
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    ours = sys.modules.pop(__name__, None)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault(__name__, ours)


_FINDER = _Finder()
if _STEPS:
    if "torch" in sys.modules:  # a .pth file has imported it
        _apply(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _FINDER)
if __name__ == "sitecustomize":
    _make_way()
