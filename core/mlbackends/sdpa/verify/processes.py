"""The plan of a run of `sdpa check` or `sdpa bench`, and the processes in which it computes."""

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.mounts import check_temporary
from mlbackends.base.reader import python_command
from mlbackends.host.files import lock
from mlbackends.isolation.service import Service
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.verify.peer import Peer, interpreter, peers

_PREFIX, _LOCK = "backends-sdpa-", "lock"
#: The processes without a backend: inputs and exact result, and the machine's speeds.
VALUES, PEAK, BANDWIDTH = "the values", "the peak", "the bandwidth"

#: What answers requests there: a function of the package `checking` of the kernels.
_RESPONDERS = {
    VALUES: "values.responder()",
    PEAK: "measures.responder('peak')",
    BANDWIDTH: "measures.responder('bandwidth')",
    # Those of `backends bench`.
    **{name: f"machine.responder({name!r})" for name in ("product", "attention", "disk-write", "disk-read")},
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    names: backends and peers, () for all our backends. required: those that must run and be right. also:
    others to run. peers: run all peers too. pythons: the interpreters that run peers, EXE for all or NAME=EXE
    for one. rounds: how often each is timed, 0 for never. timeout: seconds for each answer.
    """

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    peers: bool = False
    pythons: tuple[str, ...] = ()
    rounds: int = 7
    timeout: float = 60.0

    @property
    def named(self) -> tuple[str, ...]:
        """The backends and peers that were chosen by name."""
        return (*self.names, *self.required, *self.also)

    def python_of(self, name: str) -> str:
        """Return the interpreter that runs a peer, "" for our own."""
        pythons = python_of_peers(self.pythons)
        return pythons.get(name) or pythons.get("", "")

    def selected(self) -> tuple[tuple[AttentionBackend, ...], tuple[Peer, ...]]:
        """Return the backends and the peers to run.

        Raises UnknownName, and BadInput for an interpreter that runs no peer.
        """
        ours = {backend.name: backend for backend in backends()}
        others = {peer.name: peer for peer in peers()}
        added = (*self.required, *self.also)
        for name in self.named:
            if name not in ours and name not in others:
                raise UnknownName("attention backend", name, (*ours, *others), "backends sdpa list")
        names = {*(self.names or ours), *added, *(others if self.peers else ())}
        mine = tuple(backend for name, backend in ours.items() if name in names)
        theirs = tuple(peer for name, peer in others.items() if name in names)
        if self.pythons and not theirs:
            message = "--python names an interpreter for peers, but no peer was chosen"
            raise BadInput(message, "add --peers, or --backend with the name of a peer")
        return mine, theirs


def python_of_peers(pythons: Sequence[str]) -> dict[str, str]:
    """Return the interpreters of peers by name, with "" for all others, from EXE and NAME=EXE.

    Raises UnknownName for a NAME that is not a peer, and BadInput without an EXE.
    """
    known = tuple(peer.name for peer in peers())
    chosen: dict[str, str] = {}
    for text in pythons:
        name, equals, python = text.partition("=")
        if not equals or "/" in name or os.sep in name:
            name, python = "", text
        elif name not in known:
            raise UnknownName("peer", name, known, "backends sdpa list")
        if not python:
            raise BadInput(f"--python {text!r} names no interpreter", "write --python venv/bin/python")
        chosen[name] = python
    return chosen


class Processes:
    """The processes of one run: one for each backend, the values, the peak and the bandwidth."""

    def __init__(self, plan: Plan, folder: str) -> None:
        self.plan, self.folder = plan, folder
        self._services: dict[tuple[str, str], Service] = {}

    def send(self, name: str, lowered: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of one process. Raises Lost."""
        return self.start(name, lowered).send(request, self.plan.timeout)

    def send_alone(
        self, name: str, lowered: str, request: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the answer of one process while the others are paused. Raises Lost.

        Idle threads of OpenMP's pools and of ours spin, and would take CPUs from it. timeout: the plan's by
        default.
        """
        for service in self._services.values():
            service.pause()
        return self.start(name, lowered).send(request, self.plan.timeout if timeout is None else timeout)

    def start(self, name: str, lowered: str) -> Service:
        """Return a process, which may still be loading. lowered: its ATEN_CPU_CAPABILITY, if any."""
        service = self._services.get((name, lowered))
        if service is None or not service.alive:
            errors = os.path.join(self.folder, f"{name.replace(' ', '-')}.stderr")
            variables = {"ATEN_CPU_CAPABILITY": lowered} if lowered else {}
            service = Service(self._command(name), {**os.environ, **variables}, errors)
            self._services[name, lowered] = service
        return service

    def _command(self, name: str) -> list[str]:
        for peer in peers():
            if peer.name == name:
                python = interpreter(self.plan.python_of(name))
                return program_command(python, peer.program, peer.arguments)
        responder = _RESPONDERS.get(name, f"ours.responder({name!r})")
        module = responder.partition(".")[0]
        imports = f"from {registry.KERNELS}.checking import serving, {module}"
        return python_command(f"{imports}; serving.answer_all({responder})")

    def stop(self, kept: Sequence[str] = ()) -> None:
        """End every process but some, by name."""
        for key in [key for key in self._services if key[0] not in kept]:
            self._services.pop(key).stop()


def program_command(python: str, path: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a program by another Python, without the current folder in its path."""
    program = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; import runpy;"
        f" sys.argv[:] = {[path, *arguments]!r}; runpy.run_path({path!r}, run_name='__main__')"
    )
    return [python, "-c", program]


@contextmanager
def started(plan: Plan) -> Iterator[Processes]:
    """Yield processes and a folder for their files; both are removed after the block."""
    check_temporary()
    # The folders of this user's runs that were killed: no process has their lock any more.
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*", _LOCK)):
        with contextlib.suppress(OSError), open(path, "r+b") as file:
            is_ours = os.name == "nt" or os.fstat(file.fileno()).st_uid == os.geteuid()
            if is_ours and lock(file.fileno()):
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        open(os.path.join(folder, _LOCK), "wb") as own,
    ):
        lock(own.fileno())
        processes = Processes(plan, folder)
        try:
            yield processes
        finally:
            processes.stop()
