"""The processes in which a check computes: one for each backend, one for the values, one for the peak."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlbackends.sdpa.verify import peer_presence
from mlbackends.sdpa.verify.peer import peers
from mlbackends.sdpa.verify.plan import Plan
from mlbackends.sdpa.verify.served import Served, environment, own_command, program_command

VALUES, PEAK, BANDWIDTH = "the values", "the peak", "the bandwidth"
_CHECKING = "mlbackends_kernels.checking"


class Bench:
    """The processes of one run, by what they compute; each is started at the latest when it is asked."""

    def __init__(self, plan: Plan, folder: str) -> None:
        self.plan, self.folder = plan, folder
        self._served: dict[tuple[str, str], Served] = {}

    def ask(self, name: str, lowered: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of one process. Raises Lost."""
        return self.start(name, lowered).ask(request, self.plan.timeout)

    def start(self, name: str, lowered: str) -> Served:
        """Return a process, which may still be loading what it computes with."""
        served = self._served.get((name, lowered))
        if served is None or not served.alive:
            complaints = os.path.join(self.folder, f"{name.replace(' ', '-')}.stderr")
            served = Served(self._command(name), environment(lowered), complaints)
            self._served[name, lowered] = served
        return served

    def _command(self, name: str) -> list[str]:
        if name in (VALUES, PEAK, BANDWIDTH):
            return own_command(f"{_CHECKING}.{name.removeprefix('the ')}")
        for each in peers():
            if each.name == name:
                python = peer_presence.interpreter(self.plan.python)
                arguments = (*each.arguments, *peer_presence.library(each, self.plan.python))
                return program_command(python, each.program, arguments)
        return own_command(f"{_CHECKING}.ours", name)

    def stop(self, kept: tuple[str, ...] = ()) -> None:
        """End every process but some, by name."""
        for key in [key for key in self._served if key[0] not in kept]:
            self._served.pop(key).stop()


@contextmanager
def bench(plan: Plan) -> Iterator[Bench]:
    """Give processes, and a folder for their files; neither is there behind the block."""
    with tempfile.TemporaryDirectory(prefix="backends-sdpa-", ignore_cleanup_errors=True) as folder:
        found = Bench(plan, folder)
        try:
            yield found
        finally:
            found.stop()
