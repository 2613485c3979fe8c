"""How objects show themselves in a notebook and by print(): as the command does, where it is installed."""

import importlib
from typing import Any

from mlbackends.base.registry import CLI


class Displayed:
    """A mixin: repr() is one line, print() the command's table, and a notebook has the command's page.

    Without the package of the command line all three are that line.
    """

    __slots__ = ()

    def glance(self) -> str:
        """Return what it is, in one line."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.glance()}>"

    def __str__(self) -> str:
        notebook = _notebook()
        return str(notebook.plain(self)) if notebook else repr(self)

    def _repr_html_(self) -> str | None:
        notebook = _notebook()
        return str(notebook.framed(self)) if notebook else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        del include, exclude  # IPython applies them itself
        html = self._repr_html_()
        return {"text/plain": str(self), **({"text/html": html} if html else {})}


def _notebook() -> Any:
    """Return the format for notebooks; None where the command line is not installed."""
    try:
        return importlib.import_module(f"{CLI}.formats.notebook")
    except ImportError:
        return None
