"""Ask the libraries of an environment to compute problems, each in its own process."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.tables import table
from mlbackends.base.version import __version__
from mlbackends.conform.problems import ConformityProblem, draw
from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.host.python.packages import distribution
from mlbackends.isolation.service import Lost, Service
from mlbackends.model.conformity import SCHEMA, Answer, Conformities, Conformity, LibraryConformity
from mlbackends.model.records import Presence
from mlbackends.survey import survey

_PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
_TABLE = table("conform/conform.toml")
#: Every library that can be asked, and the distributions that bring it.
LIBRARIES: dict[str, list[str]] = _TABLE["libraries"]
_USUAL_COUNT, _QUICK_COUNT = 5, 1
_MOST_FAILURES = 4
_AT_ONCE = 2

Progress = Callable[[int, int, str], None]


def conform(
    names: Sequence[str] = (),
    *,
    python: str = "",
    seed: int = 0,
    quick: bool = False,
    problems: Sequence[ConformityProblem] = (),
    timeout: float = 60.0,
    progress: Progress = lambda *_: None,
    folder: str = "",
) -> Conformities:
    """Return how right the libraries of an environment are.

    names: of LIBRARIES, () for all that are installed. python: an interpreter, "" for this one. quick: few
    problems, without instruction-set caps, edges and one thread. problems: these instead of drawn ones.
    timeout: seconds for an import, and for an answer. folder: ask its programs, instead of ours.
    Raises UnknownName, and BadInput for what is not installed.
    """
    host = Host("/", python=query(python) if python else None)
    known = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py")) if folder else LIBRARIES
    there = [name for name in known if folder or any(distribution(host, of) for of in LIBRARIES[name])]
    where = f"installed in the environment of {host.python['executable']}"
    for name in names:
        if name not in known:
            raise UnknownName("library", name, tuple(known))
        if name not in there:
            raise BadInput(f"{name} is not {where}")
    if not there:
        raise BadInput(f"no library that can be asked is {where}", f"known: {', '.join(known)}")
    cpu: dict[str, Any] = survey(("cpu",), Host("/"), Presence.FOUND).probes["cpu"].facts
    has = {"", *cpu.get("features", ())}
    caps = [row for row in _TABLE["caps"] if not quick and row.get("needs", "") in has]
    found: list[LibraryConformity] = []
    runs = [
        [
            _Run(host.python["executable"], folder or f"{_PROGRAMS}/libraries", name, variables, timeout)
            for variables in ({}, *(row["variables"] for row in caps if name in row["libraries"]))
        ]
        for name in names or there
    ]

    def ask(group: list[_Run]) -> list[LibraryConformity]:
        first = group[0].answers(problems, seed, quick=quick)
        return [first, *(run.answers(problems, seed, quick=quick) for run in group[1:] if not first.failure)]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            answers = pool.map(ask, runs)
            for done, group in enumerate(runs):
                progress(done, len(runs), group[0].name)
                found += next(answers)
        finally:  # also where we are interrupted
            for run in (run for group in runs for run in group):
                run.stop()
    return Conformities(
        SCHEMA,
        tool=f"backends {__version__}",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=str(cpu.get("model_name", "")),
        python=host.python["executable"],
        seed=seed,
        libraries=tuple(found),
    )


class _Run:
    """One library with some variables, in a process that is started again where it ends."""

    def __init__(
        self, python: str, folder: str, name: str, variables: Mapping[str, str], timeout: float
    ) -> None:
        program = os.path.join(folder, f"{name}.py")
        self.name, self._variables, self._timeout = name, dict(variables), timeout
        # -P is in start_group's variable, for Pythons that have no such option.
        self._command = [python, os.path.join(_PROGRAMS, "serve.py"), program]
        self._service: Service | None = None
        self._is_over = False

    def stop(self) -> None:
        """End it, and start no process any more."""
        self._is_over = True
        if self._service is not None:
            self._service.stop()

    def answers(self, problems: Sequence[ConformityProblem], seed: int, *, quick: bool) -> LibraryConformity:
        """Return its answers to problems, or to those that it draws."""
        made, found = LibraryConformity(self.name, "", self._variables), []
        with tempfile.TemporaryDirectory(prefix="backends-conform-") as self._errors:
            try:
                about = self._send({})
                if not problems:
                    count = _QUICK_COUNT if quick else _TABLE["counts"].get(self.name, _USUAL_COUNT)
                    edges, layouts = not quick and not self._variables, about["has_layouts"]
                    problems = [*draw(seed, about["offered"], count, has_layouts=layouts, edges=edges)]
                for problem in problems:
                    found.append(self._answer(problem, about["offered"]))
                    if sum(one.answer is Answer.FAILED for one in found) > _MOST_FAILURES:
                        made = replace(made, failure="it fails too often; the other problems were not asked")
                        break
                if all(one.answer is Answer.REFUSED for one in found):
                    made = replace(made, failure=found[0].message if found else "no operation")
                return replace(made, version=about["version"], answers=tuple(found))
            except Lost as lost:
                return replace(made, failure=lost.reason.message)
            finally:
                self.stop()

    def _answer(self, problem: ConformityProblem, offered: Mapping[str, Sequence[str]]) -> Conformity:
        """Return the answer to a problem."""
        answer: dict[str, Any] = {"answer": Answer.REFUSED, "message": "it has no such operation or type"}
        if problem.dtype in offered.get(problem.operation, ()):
            try:
                answer = self._send(asdict(problem))
            except Lost as lost:
                answer = {"answer": Answer.FAILED, "message": lost.reason.message}
        named = {"problem": problem.line, "operation": problem.operation, "dtype": problem.dtype}
        return msgspec.convert({**answer, **named}, Conformity)

    def _send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, {} about the library itself. Raises Lost."""
        if self._is_over:
            raise InterruptedError
        if self._service is None or not self._service.alive:
            variables = {**os.environ, **self._variables}
            self._service = Service(self._command, variables, f"{self._errors}/stderr")
            if request:
                self._service.send({}, self._timeout)
        return self._service.send(request, self._timeout)
