"""What MKL and oneDNN run in this very process, as records: `mlbackends.trace`.

    with mlbackends.trace("onednn") as session:
        model(batch)
    session.records                                 typed; str(record) is the line
    session.summary(by=("operation", "shape"))
    session.findings()

It listens to the copies that the process has loaded, those inside torch too, in all its threads. What
the program prints meanwhile goes on to standard output. The switches and standard output belong to
the process, so that sessions share them: they may be inside each other, overlap in threads, and
be inside or around `mlbackends.mkl.verbose` and `mlbackends.mkldnn.verbose`. Each restores what it
found.

Records have their process, thread and start where the capture's shim is installed and the C library
is glibc; a forked child has its own. Elsewhere they have the process, unless another one may have
printed the line, and the start where the user had oneDNN print time stamps; `thread` is then MKL's own
number. What is not known is None.

Limits: a program that is started inside a session must end inside, or what it prints later is lost.
oneDNN prints time stamps and refusals only where variables requested them before its first use.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, Self

from mlbackends.base import registry
from mlbackends.base.display import Displayed
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.tracing import exporting, viewing
from mlbackends.tracing.machine import this_machine
from mlbackends.tracing.reader import line_records
from mlbackends.tracing.session import listener
from mlbackends.tracing.verbose import MklVerbose, OnednnVerbose, VerboseUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.model.trace import AnyRecord
    from mlbackends.model.trace_views import AnyView, Findings, Summary

_LEVELS = {"exec": 1, "create": 2}
_NOT_FROM_WITHIN = ("dispatch", "all")


class Session(Displayed):
    """A scope in which records are collected; see `trace`. It may be entered again when it has ended.

    tracers: whose lines are collected; where any will do, those that were reached on entering.
    """

    def __init__(self, tracers: tuple[str, ...], level: str) -> None:
        self.tracers = frozenset(tracers)
        self._requested = tracers
        self._level = level
        self._lines: list[bytes] = []
        self._records: list[AnyRecord] = []
        self._scopes: ExitStack | None = None

    def __enter__(self) -> Self:
        """Begin to listen.

        Raises VerboseUnreachable where a library is not loaded or has no switch, NotCaptured where its
        lines go elsewhere, and OSError where standard output cannot be redirected; then nothing has changed.
        """
        if self._scopes is not None:
            raise RuntimeError("this session is already running; create another one")
        names = self._requested or registry.names("mlbackends.tracing.formats")
        with ExitStack() as scopes:
            self.tracers = frozenset(names)
            listener.begin(self)
            # Whatever is set from here on is set back before the last lines are taken.
            scopes.callback(listener.end, self)
            problems: list[VerboseUnreachable] = []
            for name in names:
                try:
                    number = _LEVELS[self._level]
                    scopes.enter_context(MklVerbose(1) if name == "mkl" else OnednnVerbose(number))
                except VerboseUnreachable as problem:
                    problems.append(problem)
            if problems and (self._requested or len(problems) == len(names)):
                why = "; ".join(str(problem) for problem in problems)
                raise VerboseUnreachable(why, problems[0].hint)
            self._scopes = scopes.pop_all()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> Literal[False]:
        scopes, self._scopes = self._scopes, None
        if scopes is not None:
            try:
                scopes.close()
            except OSError:
                # The program's own failure matters more than that its text could not be printed.
                if error is None:
                    raise
        return False

    def take(self, lines: list[bytes]) -> None:
        """Take in lines; they are read when somebody asks for records."""
        self._lines += lines

    @property
    def records(self) -> "list[AnyRecord]":
        """What was collected so far, in the order in which it was printed."""
        if self._scopes is not None:
            listener.hand_on()
        new, self._lines = self._lines, []
        for line in new:
            number = len(self._records) + 1
            self._records += (
                record for record in line_records(line, number) if record.tracer in self.tracers
            )
        return self._records

    def summary(self, by: tuple[str, ...] = (), top: int = 0, of: str = "work") -> "Summary":
        """Return which calls took the time.

        by: fields such as "operation", "shape", "implementation". top: the number of rows, 0 for all.
        of: "work", "creations", "partitions" or "all". Raises BadInput for an unknown field.
        """
        options = {"by": tuple(by)} if by else {}
        return self.view("summary", top=top, of=of, **options)  # type: ignore[return-value]

    def findings(self) -> "Findings":
        """Return what the trace gives away, the worst first; this machine is known."""
        return self.view("findings", machine=this_machine())  # type: ignore[return-value]

    def view(self, name: str, **options: Any) -> "AnyView":
        """Return one of the views of `backends trace show`; options are those of its collector."""
        return viewing.view(name, self.records, **options)

    def save(self, path: str) -> int:
        """Write the records to a file: .jsonl, .csv, .parquet, .json (Perfetto), .gz behind it.

        A file called .log or .txt gets the lines as the libraries printed them. Returns how many
        went in; raises BadInput where it cannot be written.
        """
        if not path.lower().endswith((".log", ".txt")):
            return exporting.export(self.records, path)
        lines = [str(record).encode("utf-8", "surrogateescape") for record in self.records]
        try:
            with open(path, "wb") as file:
                file.writelines(line + b"\n" for line in lines)
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}") from None
        return len(lines)

    def __iter__(self) -> "Iterator[AnyRecord]":
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        """Return True: a session without records is one too."""
        return True

    def glance(self) -> str:
        """Return whose lines it collects, how many it has, and whether it runs."""
        state = "running" if self._scopes is not None else "ended"
        return f"session of {', '.join(sorted(self.tracers))}: {len(self)} records, {state}"


def trace(*tracers: str, level: str = "create") -> Session:
    """Return a scope that collects what libraries run in this process: "onednn", "mkl" or both.

    Without a name, or with "all", it takes those that are loaded, at least one.
    level: of oneDNN, "exec" or "create" (and exec); "dispatch" and "all" can be had by variables only.
    Raises UnknownName for a tracer or a level that there is not.
    """
    formats = registry.names("mlbackends.tracing.formats")
    if "all" in tracers:
        tracers = ()
    for name in tracers:
        if name not in formats:
            raise UnknownName("tracer", name, (*formats, "all"))
    if level in _NOT_FROM_WITHIN:
        raise BadInput(
            f"no running oneDNN can be set to {level!r}: it reads that from variables, at its start",
            f"backends trace onednn --level {level} -- COMMAND, or level='create'",
        )
    if level not in _LEVELS:
        raise UnknownName("level", level, (*_LEVELS, *_NOT_FROM_WITHIN))
    return Session(tuple(dict.fromkeys(tracers)), level)
