"""Which operation has which colour: the same on every plot of a page."""

from collections.abc import Iterable

from mlbackends_cli.picture.svg import Drawing, width_of

MOST = 8
OTHER = "series other"


class Colours:
    """Gives the first eight operations a colour of their own, and one to all others.

    operations: those that take longest first.
    """

    def __init__(self, operations: Iterable[str]) -> None:
        names = list(dict.fromkeys(operations))
        self._kinds = {name: f"series s{index}" for index, name in enumerate(names[:MOST])}
        self._more = len(names) > MOST

    def of(self, operation: str) -> str:
        """Return the class of an operation's shapes."""
        return self._kinds.get(operation, OTHER)

    def legend(self, drawing: Drawing, x: float, y: float, width: float) -> float:
        """Draw a square and a name for each colour, in rows; return how tall they are."""
        left, top = x, y
        named = [*self._kinds.items(), *([("others", OTHER)] if self._more else [])]
        for name, kind in named:
            # A routine's name in capitals is wider than words are.
            letters = width_of(name, "small") * (1.3 if name.isupper() else 1)
            room = min(letters + 22, width)
            if left > x and left + room > x + width:
                left, top = x, top + 17
            drawing.box(left, top, 10, 10, kind)
            drawing.words(left + 15, top + 9, name or "?", room - 14, "small")
            left += room + 8
        return top - y + 17 if named else 0
