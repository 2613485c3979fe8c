"""Programs in a job object of Windows, which ends together with this process.

Source: Job Objects, Process Creation Flags, SetErrorMode and NTSTATUS Values in Microsoft's documentation.
"""

import contextlib
import ctypes
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SUSPENDED, _WITHOUT_WINDOW = 0x4, 0x08000000
_DIE_ON_EXCEPTION, _CHILDREN_STAY_OUT, _END_WITH_US = 0x400, 0x1000, 0x2000
#: SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX and SEM_NOOPENFILEERRORBOX, which children inherit.
_NO_DIALOGS = 0x8003
#: JobObjectExtendedLimitInformation: its number and, in 64 bits, its size and the offset of its flags.
_EXTENDED_LIMITS, _LIMIT_BYTES, _FLAGS_AT = 9, 144, 16


class Program(subprocess.Popen[bytes]):
    """A program in its own job. Raises OSError if it cannot be started.

    whole: whether what it starts is in the job too and no window or dialog appears; otherwise it is the
    user's program, which ends with us, without its children, and shares our console.
    """

    def __init__(self, command: Sequence[str], *, whole: bool, **options: Any) -> None:
        self._kernel: Any = ctypes.CDLL("kernel32", use_last_error=True)
        self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
        self._job = self._kernel.CreateJobObjectW(None, None)
        flags = _END_WITH_US | (_DIE_ON_EXCEPTION if whole else _CHILDREN_STAY_OUT)
        limits = bytearray(_LIMIT_BYTES)
        limits[_FLAGS_AT : _FLAGS_AT + 4] = flags.to_bytes(4, "little")
        self._call("SetInformationJobObject", _EXTENDED_LIMITS, bytes(limits), _LIMIT_BYTES)
        before = self._kernel.SetErrorMode(_NO_DIALOGS) if whole else 0
        try:
            # Suspended: nothing that it starts is outside of the job.
            creation = _SUSPENDED | (_WITHOUT_WINDOW if whole else 0)
            super().__init__(command, creationflags=creation, **options)
        finally:
            if whole:
                self._kernel.SetErrorMode(before)
        process = ctypes.c_void_p(int(self._handle))  # type: ignore[attr-defined]
        # Refused if our job allows no nested jobs: the program then runs in its parent's job.
        self._is_in_job = bool(self._call("AssignProcessToJobObject", process))
        ctypes.CDLL("ntdll").NtResumeProcess(process)

    def _call(self, function: str, *arguments: Any) -> int:
        result: int = getattr(self._kernel, function)(ctypes.c_void_p(self._job), *arguments)
        return result

    def poll_for(self, seconds: float) -> int | None:
        """Return its exit code; None if it runs for longer than that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(seconds)
        return None

    def kill(self) -> None:
        """End it and all that is in its job."""
        if self._is_in_job:
            self._call("TerminateJobObject", 1)
        else:
            super().kill()

    def __del__(self) -> None:
        self._call("CloseHandle")
        super().__del__()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Leave Ctrl-C and Ctrl-Break to the programs that share our console."""
    numbers = (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGINT))
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_in_our_place(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program as if it replaced this process, and return its exit code.

    It gets Ctrl-C and Ctrl-Break itself, and ends when this process is ended. Raises OSError.
    """
    with without_interrupts():
        return Program(command, whole=False, env=dict(environment)).wait()
