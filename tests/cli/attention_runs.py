"""Commands of `backends sdpa` in this process, whose backends compute here too: the same answers, sooner."""

from __future__ import annotations

import contextlib
import io
import json
import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
from jsonschema import Draft202012Validator
from running import PLAIN, backends_alone

from mlbackends.base.reasons import Reason
from mlbackends.isolation.service import Lost
from mlbackends.model.checked import Ended
from mlbackends.sdpa.dispatch import backends as attention_backends
from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, VALUES, Processes
from mlbackends_cli.main import guarded_main
from mlbackends_cli.report.commands.schema import SCHEMAS
from mlbackends_kernels.checking import measures, ours, values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import CompletedProcess


class Captured(io.StringIO):
    encoding = "utf-8"


class Local:
    """Stands for a process of a check, and answers in this one."""

    alive = True

    def __init__(self, name: str) -> None:
        made: dict[str, Any] = {
            VALUES: values.responder,
            PEAK: lambda: measures.responder("peak"),
            BANDWIDTH: lambda: measures.responder("bandwidth"),
        }
        self.answer = made[name]() if name in made else ours.responder(name)

    def send(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        del timeout
        if request.get("calls"):
            request = {**request, "calls": 2}
        try:
            found: dict[str, Any] = self.answer(json.loads(msgspec.json.encode(request)))
            found.pop("waited", None)  # of all tests that run here: nothing may rest on it
        except Exception as error:  # noqa: BLE001  as a process does
            raise Lost(Ended.RAISED, Reason("call-failed", str(error))) from None
        return found

    def pause(self) -> None:
        """There is nothing to stop."""

    def stop(self) -> None:
        """There is nothing to end."""


def _start(processes: Processes, name: str, lowered: str) -> Any:
    ours_too = {backend.name for backend in attention_backends()} | {VALUES, PEAK, BANDWIDTH}
    if lowered or name not in ours_too:
        return REAL_START(processes, name, lowered)
    services: dict[Any, Any] = processes._services
    return services.setdefault((name, lowered), Local(name))


REAL_START = Processes.start


class Done:
    """As `subprocess.CompletedProcess`."""

    def __init__(self, returncode: int, stdout: str, stderr: str) -> None:
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


def ran(*arguments: str, environment: Mapping[str, str] | None = None) -> Done:
    """Run `backends sdpa ARGUMENTS` in this process."""
    out, err = Captured(), Captured()
    with (
        mock.patch.dict(os.environ, {**PLAIN, **(environment or {})}, clear=True),
        mock.patch.object(Processes, "start", _start),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = guarded_main(["sdpa", *arguments])
    return Done(code, out.getvalue(), err.getvalue())


def ran_alone(*arguments: str, **options: Any) -> CompletedProcess[str]:
    """Run `backends sdpa ARGUMENTS` as a user does."""
    return backends_alone("sdpa", *arguments, **options)


def record(*arguments: str, run: Any = ran, **options: Any) -> dict[str, Any]:
    """Return what a command prints as JSON, after a look at its schema, and its exit code."""
    done = run(*arguments, "--format", "json", **options)
    data: dict[str, Any] = msgspec.json.decode(done.stdout)
    Draft202012Validator(SCHEMAS[f"sdpa-{arguments[0]}"]()).validate(data)
    return {**data, "exit": done.returncode}


def results(problem: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a problem, by the name of the backend."""
    return {result["backend"]: result for result in problem["results"]}
