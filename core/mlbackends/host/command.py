"""Run a command for its output, within a time limit; everything that it started dies with it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

#: How often to check whether a silent command has ended and left its pipe to another process.
_ENDED_SECONDS = 0.05
#: The most bytes that a command may print; one that prints more counts as failed.
OUTPUT_LIMIT = 32 << 20


class Outcome(NamedTuple):
    """How a command ended.

    status: the exit status, as `ending` reads it; None if it could not be started, or was
    stopped at a limit. output: its standard output, "" if it was stopped.
    """

    status: int | None
    output: str = ""
    timed_out: bool = False


def start_group(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    inherits: bool = False,
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a program so that `kill_group` ends all that it starts. options: those of `subprocess.Popen`.

    No Python imports from the current folder there, from version 3.11 on. inherits: whether a program of
    the user may be started below, whose environment must be as it is; then `command` takes care of that.
    """
    options["env"] = {**environment, **({} if inherits else {"PYTHONSAFEPATH": "1"})}
    if os.name == "nt":
        from mlbackends.host.job_object import Program

        return Program(command, whole=True, **options)
    return subprocess.Popen(command, start_new_session=True, **options)


def outcome_of(
    command: Sequence[str],
    timeout: float,
    environment: Mapping[str, str],
    errors: int = subprocess.DEVNULL,
    *,
    inherits: bool = False,
    running: "set[subprocess.Popen[bytes]] | None" = None,
    given: int = subprocess.DEVNULL,
) -> Outcome:
    """Run a command to its end or for `timeout` seconds, whichever comes first.

    errors: the file descriptor of its standard error. inherits: as in `start_group`. running: has its process
    while it runs. given: the file descriptor of its standard input.
    """
    running = set() if running is None else running
    try:
        process = start_group(
            command,
            environment,
            inherits=inherits,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    except (OSError, ValueError):
        return Outcome(None)
    running.add(process)
    try:
        ended, (output,) = read_to_end(process, timeout)
        if len(output) >= OUTPUT_LIMIT:
            return Outcome(None)
        return (
            Outcome(process.returncode, output.decode(errors="replace")) if ended else Outcome(None, "", True)
        )
    finally:  # also where we are interrupted
        running.discard(process)
        kill_group(process)
        if process.stdout is not None:
            process.stdout.close()


def read_to_end(
    process: "subprocess.Popen[bytes]", timeout: float, question: bytes = b"", grace: float = _ENDED_SECONDS
) -> tuple[bool, list[bytes]]:
    """Return whether a process ended in time, and what it printed to each of its pipes; it is killed then.

    Processes that it started and left behind, as Wine's explorer.exe, may hold the pipes for longer; they
    are waited for only for `grace` seconds. question: what it gets on its standard input. Threads read,
    because a read of a pipe cannot be interrupted on Windows.
    """
    import threading

    def read(stream: IO[bytes], output: bytearray) -> None:
        with contextlib.suppress(OSError, ValueError):
            while len(output) < OUTPUT_LIMIT and (piece := os.read(stream.fileno(), 65536)):
                output.extend(piece)

    readers = []
    for stream in filter(None, (process.stdout, process.stderr)):
        output = bytearray()
        readers.append((threading.Thread(target=read, args=(stream, output), daemon=True), output, stream))
        readers[-1][0].start()
    if process.stdin is not None:
        with contextlib.suppress(OSError), process.stdin as pipe:  # it may have ended already
            pipe.write(question)
    first, deadline = readers[0][0], time.monotonic() + timeout
    has_ended = False
    while first.is_alive() and not has_ended and time.monotonic() < deadline:
        has_ended = process.poll() is not None
        first.join(_ENDED_SECONDS)
    if len(readers[0][1]) < OUTPUT_LIMIT:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
            has_ended = True
    kill_group(process)
    deadline = time.monotonic() + grace
    for thread, _, stream in readers:
        thread.join(max(0.0, deadline - time.monotonic()))
        if not thread.is_alive():  # no stream can be closed while it is read
            stream.close()
    return has_ended, [bytes(output) for _, output, _ in readers]


def ending(code: int) -> tuple[str, str]:
    """Return what an exit code means, as a reason's code and in words: ("crashed", "SIGSEGV")."""
    if code < 0:
        named = {number.value: number.name for number in signal.Signals}
        return "crashed", named.get(-code, f"signal {-code}")  # a real-time signal has no name
    if code >> 31:  # with which Windows ends a process; abort() too has 0xC0000409
        from mlbackends.base.tables import table  # Ray's and Dask's workers have this file alone

        number = f"0x{code:08X}"
        return "crashed", f"{table('host/windows/exit_codes').get(number, 'the status')} ({number})"
    return "exited", f"exit code {code}"


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process of `start_group`, and all that it started; reap it if it dies soon."""
    with contextlib.suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    # A process in an uninterruptible wait inside a driver does not die: do not wait for it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
