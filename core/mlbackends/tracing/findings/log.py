"""What the lines themselves reveal: unreadable ones, complaints, several runs."""

from collections.abc import Hashable

from mlbackends.base.errors import counted
from mlbackends.model.trace import Call, Check, Header, Malformed, Message, Record
from mlbackends.tracing import LIBRARIES
from mlbackends.tracing.finder import Finder, Found, percent, took

#: Different complaints, and versions, that are kept.
_MOST_COMPLAINTS, _MOST_VERSIONS = 10_000, 100
_SHORT_NS = 50_000
_LEAST_CALLS = 100
#: The approximate cost of printing a line: 3 to 4 us in oneDNN, 10 to 16 in MKL, which opens its file.
_LINE_NS = {"onednn": 4_000, "mkl": 12_000}


class UnreadableLines(Finder):
    """Lines that begin as a library's could not be read: truncated, or of a version not known here."""

    WANTS = frozenset(("notes",))
    LINES = 3

    def key(self, record: Record) -> Hashable | None:
        return record.reason if isinstance(record, Malformed) else None  # the reader has two

    def result(self) -> Found:
        if self.sums:
            count = sum(lines.count for lines in self.sums.values())
            reason, most = max(self.sums.items(), key=lambda item: item[1].count)
            yield self.finding(
                "medium" if count > self.all_count / 100 else "low",
                f"{counted(count, 'line')} could not be read; most often ({most.count:,}): {reason}",
                evidence=self.lines_of(*self.sums.values())[:3],
                count=count,
            )


class LibraryErrors(Finder):
    """The libraries complained: errors, warnings, arguments that they did not accept.

    The same complaint comes hundreds of times, so one line of each is shown.
    """

    WANTS = frozenset(("notes",))
    LINES = 1

    def key(self, record: Record) -> Hashable | None:
        if isinstance(record, Check):
            key = ("check", record.origin, record.reason)
        elif isinstance(record, Message) and record.level in {"error", "warning"}:
            key = (record.level, record.origin, record.text)
        else:
            return None
        return key if key in self.sums or len(self.sums) < _MOST_COMPLAINTS else None

    def result(self) -> Found:
        for level, severity in (("error", "medium"), ("warning", "low"), ("check", "low")):
            sums = {key: lines for key, lines in self.sums.items() if key[0] == level}
            if not sums:
                continue
            (_, source, text), most = max(sums.items(), key=lambda item: item[1].count)
            noun = "failed check" if level == "check" else level
            words = f"{source}: {text}" if source else text
            count = sum(lines.count for lines in sums.values())
            yield self.finding(
                severity,
                f"{counted(count, noun)}; most often ({most.count:,}) {words.strip()!r}",
                evidence=self.lines_of(*sums.values())[:4],
                count=count,
            )


class SeveralVersions(Finder):
    """Several versions of a library printed lines: a process has several copies, or a log several runs."""

    WANTS = frozenset(("notes",))
    LINES = 1

    def key(self, record: Record) -> Hashable | None:
        if isinstance(record, Header) and len(self.sums) < _MOST_VERSIONS:
            return record.tracer, record.version
        return None

    def result(self) -> Found:
        for tracer in dict.fromkeys(tracer for tracer, _ in self.sums):
            versions = {key[1]: lines for key, lines in self.sums.items() if key[0] == tracer}
            if len(versions) > 1:
                yield self.finding(
                    "low",
                    f"{LIBRARIES.get(tracer, tracer)} printed lines in {len(versions)} versions:"
                    f" {', '.join(versions)}",
                    evidence=self.lines_of(*versions.values())[:6],
                    count=len(versions),
                )


class TracingOverhead(Finder):
    """The calls are so short that printing a line for each distorts what is seen."""

    WANTS = frozenset(("work", "uncounted"))

    def key(self, record: Record) -> Hashable | None:
        return (record.tracer, record.counted) if isinstance(record, Call) else None

    def result(self) -> Found:
        for (tracer, is_counted), calls in list(self.sums.items()):
            count, total = calls.count, calls.total_ns
            if not is_counted or count < _LEAST_CALLS or total / count >= _SHORT_NS:
                continue
            lines = count + self.sums[tracer, False].count
            cost = lines * _LINE_NS.get(tracer, 4_000)
            seen = (
                f"{counted(count, 'call')} take {took(total / count)} on average; printing"
                f" {counted(lines, 'line')} took about {took(cost)} more,"
                f" {percent(cost / total) if total else 'more'} as long"
            )
            severity = "medium" if cost > total else "low"
            yield self.finding(severity, seen, count=count, total_ns=float(cost))
