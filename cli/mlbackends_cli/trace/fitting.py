"""What `backends trace show` prints where no call fits the options: which values there are."""

from msgspec.structs import replace

from mlbackends.model.trace import Call, Record, Text
from mlbackends.tracing import fields
from mlbackends.tracing.filters import Where
from mlbackends_cli.text.plain import one_line, shortened

_MOST_VALUES = 1000
_MOST_SHOWN = 10
_LONGEST = 80
_LONGEST_COMPARED = 200
_PLURALS = frozenset({"operation", "shape", "dtype", "implementation", "format", "routine"})


class Fitting:
    """A filter that remembers whether anything fitted and, as long as nothing did, what was there.

    calls_only: headers and messages that fit are not enough. executed_only: nor are creations.
    """

    def __init__(
        self, where: Where, skip_first: int, *, calls_only: bool, executed_only: bool
    ) -> None:
        self.anything = not where.text and not skip_first
        self._inner = where
        self._skip_first = skip_first
        self._calls_only, self._executed_only = calls_only, executed_only
        # Of fields with few values: no times, no whole lines.
        many = {*fields.NUMBERS, *fields.TRUTHS, "raw", "key"} - {"process", "thread"}
        self._by_field: dict[str, dict[str, None]] = {
            name: {} for name in sorted(where.fields - many)
        }
        self._readers = {name: fields.read_text(name) for name in self._by_field}
        self.where = where if self.anything else replace(where, test=self._test)

    def _test(self, record: Record) -> bool:
        fits = self._inner(record)
        if self.anything:
            return fits
        if self._executed_only:
            matters = record.executed
        elif self._calls_only:
            matters = isinstance(record, Call)
        else:
            matters = not isinstance(record, Text) or "kind" in self._inner.fields
        if matters:
            self.anything = fits
            for name, reader in self._readers.items():
                values = self._by_field[name]
                if len(values) < _MOST_VALUES and (value := reader(record)):
                    values[value] = None
        return fits

    def message(self) -> str:
        """Return the line for when nothing fitted."""
        noun = "call" if self._calls_only else "line"
        skipped = f"--skip-first {self._skip_first}" if self._skip_first else ""
        if not self._inner.text:
            return f"no {noun} is left after {skipped}: no call comes more often"
        behind = f" after {skipped}" if skipped else ""
        text = one_line(shortened(self._inner.text, _LONGEST_COMPARED))
        # The values of the field that keeps the expression from fitting, the most similar first.
        compared = self._inner.equals or tuple((name, "") for name in self._by_field)
        unmet = (
            (name, value)
            for name, value in compared
            if value not in self._by_field.get(name, (value,))
        )
        name, wanted = next(unmet, ("", ""))
        values = sorted(self._by_field.get(name, ()), key=lambda value: _order(wanted, value))
        if values:
            behind += f"; {name}{'s here are' if name in _PLURALS else ' here is'}: "
            behind += ", ".join(
                one_line(shortened(value, _LONGEST)) for value in values[:_MOST_SHOWN]
            )
        if len(values) > _MOST_SHOWN:
            behind += f" and {len(values) - _MOST_SHOWN:,} more"
        return f"no {noun} fits --where '{text}'{behind}"


def _order(wanted: str, value: str) -> tuple[float, str]:
    """Return where a value belongs in an order by similarity."""
    import difflib

    left, right = (text[:_LONGEST_COMPARED].lower() for text in (wanted, value))
    return -difflib.SequenceMatcher(None, left, right).ratio(), value
