"""The libraries complained: errors, warnings, arguments that they did not take."""

from mlbackends.model.trace import Check, Message, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, times

_MOST = 10_000


class Finder(finder.Finder):
    """Counts complaints by their words."""

    WANTS = frozenset(("notes",))
    WHY = "a call was refused or not done as requested; frameworks often hide this"
    ACTION = "read the lines; where one names a parameter, look at who calls with it"
    LINES = 1  # the same complaint comes hundreds of times

    def key(self, record: Record) -> tuple[str, str, str] | None:
        if isinstance(record, Check):
            key = ("check", record.origin, record.reason)
        elif isinstance(record, Message) and record.level in {"error", "warning"}:
            key = (record.level, record.origin, record.text)
        else:
            return None
        return key if key in self.sums or len(self.sums) < _MOST else None

    def result(self) -> Found:
        for level, severity in (("error", "medium"), ("warning", "low"), ("check", "low")):
            sums = {key: each for key, each in self.sums.items() if key[0] == level}
            if not sums:
                continue
            (_, source, text), most = max(sums.items(), key=lambda item: item[1].count)
            noun = "failed check" if level == "check" else level
            words = f"{source}: {text}" if source else text
            count = sum(each.count for each in sums.values())
            yield self.finding(
                severity,
                f"{times(count, noun)}; most often ({most.count:,}) {words.strip()!r}",
                evidence=tuple(line for each in sums.values() for line in each.lines)[:4],
                count=count,
            )
