"""The libraries complained: errors, warnings, arguments that they did not take."""

from mlbackends.model.trace import Check, Message, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Evidence, Whole, times


class Finder(finder.Finder):
    """Counts complaints by their words."""

    WANTS = frozenset(("notes",))

    def begin(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._evidence: dict[str, Evidence] = {}

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Check):
            which = ("check", record.who, record.reason)
        elif isinstance(record, Message) and record.level in {"error", "warning"}:
            which = (record.level, record.who, record.text)
        else:
            return
        if which in self._counts:
            self._counts[which] += count
        elif len(self._counts) < 10_000:
            self._counts[which] = count
            # One line of each kind: the same complaint comes hundreds of times.
            self._evidence.setdefault(which[0], Evidence(4)).add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each kind of complaint."""
        del whole
        found = []
        for level, severity in (("error", "medium"), ("warning", "low"), ("check", "low")):
            counts = {which: n for which, n in self._counts.items() if which[0] == level}
            if not counts:
                continue
            (_, who, text), most = max(counts.items(), key=lambda item: item[1])
            what = "failed check" if level == "check" else level
            words = f"{who}: {text}" if who else text
            found.append(
                self.finding(
                    severity,
                    f"{times(sum(counts.values()), what)}; most often ({most:,}) {words.strip()!r}",
                    why="a call was refused or not done as asked; frameworks often hide it",
                    action="read the lines; where one names a parameter, look at who calls with it",
                    evidence=self._evidence[level].lines,
                    count=sum(counts.values()),
                )
            )
        return found
