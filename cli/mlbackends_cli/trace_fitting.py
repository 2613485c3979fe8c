"""What `backends trace show` says where no call fits what was asked for: which values there are."""

from msgspec.structs import replace

from mlbackends.model.trace import Call, Record, Text
from mlbackends.tracing import fields
from mlbackends.tracing.filters import Where
from mlbackends_cli.plain import one_line, shortened

_MOST_SEEN = 1000
_MOST_TOLD = 10
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
        self._seen: dict[str, dict[str, None]] = {
            name: {} for name in sorted(where.fields) if _is_told(name)
        }
        self._readers = {name: fields.read_text(name) for name in self._seen}
        self.where = where if self.anything else replace(where, test=self._test)

    def _test(self, record: Record) -> bool:
        fits = self._inner(record)
        if not self.anything and self._matters(record):
            self.anything = fits
            for name, reader in self._readers.items():
                seen = self._seen[name]
                if len(seen) < _MOST_SEEN and (value := reader(record)):
                    seen[value] = None
        return fits

    def _matters(self, record: Record) -> bool:
        if self._executed_only:
            return record.executed
        if self._calls_only:
            return isinstance(record, Call)
        return not isinstance(record, Text) or "kind" in self._inner.fields

    def said(self) -> str:
        """Return the line that says that nothing fitted."""
        what = "call" if self._calls_only else "line"
        skipped = f"--skip-first {self._skip_first}" if self._skip_first else ""
        if not self._inner.text:
            return f"no {what} is left after {skipped}: no call comes more often"
        behind = f" after {skipped}" if skipped else ""
        asked = one_line(shortened(self._inner.text, _LONGEST_COMPARED))
        return f"no {what} fits --where '{asked}'{behind}{self._values()}"

    def _values(self) -> str:
        name, value = self._unseen()
        seen = sorted(self._seen.get(name, ()), key=lambda each: (-_likeness(value, each), each))
        if not seen:
            return ""
        told = ", ".join(one_line(shortened(each, _LONGEST)) for each in seen[:_MOST_TOLD])
        more = f" and {len(seen) - _MOST_TOLD:,} more" if len(seen) > _MOST_TOLD else ""
        return f"; {name}{'s here are' if name in _PLURALS else ' here is'}: {told}{more}"

    def _unseen(self) -> tuple[str, str]:
        """Return the field, and the value, that keeps the expression from fitting, as far as is known."""
        for name, value in self._inner.equals:
            if name in self._seen and value not in self._seen[name]:
                return name, value
        return ("", "") if self._inner.equals else (next(iter(self._seen), ""), "")


def _is_told(name: str) -> bool:
    """Tell whether the values of a field are few and say something: no times, no whole lines."""
    return name in {"process", "thread"} or name not in {
        *fields.NUMBERS,
        *fields.TRUTHS,
        "raw",
        "key",
    }


def _likeness(value: str, seen: str) -> float:
    import difflib

    left, right = (each[:_LONGEST_COMPARED].lower() for each in (value, seen))
    return difflib.SequenceMatcher(None, left, right).ratio()
