"""How objects show themselves in a notebook and by print(): as the command does, where it is installed."""

import importlib
from typing import Any

#: By its name, as the registry loads a leaf: the registry itself imports records, which are shown here.
_FORMAT = "mlbackends_cli.formats.notebook"


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
        format_ = _notebook()
        return str(format_.plain(self)) if format_ else repr(self)

    def _repr_html_(self) -> str | None:
        format_ = _notebook()
        return str(format_.framed(self)) if format_ else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        del include, exclude  # IPython sorts that out
        html = self._repr_html_()
        return {"text/plain": str(self), **({"text/html": html} if html else {})}


def _notebook() -> Any:
    """Return the format for notebooks; None where there is no command line."""
    try:
        return importlib.import_module(_FORMAT)
    except ImportError:
        return None
