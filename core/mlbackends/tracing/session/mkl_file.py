"""The file that MKL prints to: its own function for that, where a loaded copy exports one.

Source: oneMKL developer reference, mkl_verbose_output_file; MKL 2021.4 to 2026.2.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable

from mlbackends.tracing.session.redirection import Redirected, write_all
from mlbackends.tracing.session.sink import Sink
from mlbackends.tracing.verbose.copies import Held, loaded_files

VARIABLE = "MKL_VERBOSE_OUTPUT_FILE"

_SWITCHES = ("MKL_Verbose", "mkl_verbose")
_FUNCTIONS = ("MKL_Verbose_Output_File", "mkl_verbose_output_file")
_COMPLAINT = b"MKL_VERBOSE WARNING: incorrect output filename"


class OutputFiles:
    """The functions of all copies that are loaded now.

    any_switch: whether there is a copy that can be switched. all_have_one: whether each of these has such a
    function; torch's has none.
    """

    def __init__(self) -> None:
        self._held: list[Held] = []
        self._functions: dict[int, Callable[[bytes], int]] = {}
        self.all_have_one = True
        switches: dict[int, bool] = {}
        for path in loaded_files():
            try:
                held = Held(path)
            except OSError:
                continue
            switch, function = _first(held, _SWITCHES), _first(held, _FUNCTIONS)
            if not switch:
                held.release()
                continue
            self._held.append(held)
            # Two files may answer with the same copy, and only one of them with its file function.
            switches[switch] = switches.get(switch, False) or bool(function)
            if function:
                kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
                self._functions[function] = kind(function)
        self.any_switch = bool(switches)
        self.all_have_one = bool(switches) and all(switches.values())

    def set(self, path: str) -> None:
        """Have every copy append to a file; one that cannot prints to standard output on."""
        for function in self._functions.values():
            if function(os.fsencode(path)):
                self.all_have_one = False

    def give_back(self) -> None:
        """Have every copy print to where it did: the user's file, or standard output."""
        path = os.environ.get(VARIABLE, "")
        if path:
            self.set(path)
        else:
            self.set_standard_output()

    def set_standard_output(self) -> None:
        """Have every copy print to C's `stdout`: its word for that is a name that it complains about."""

        def set_all() -> None:
            for function in self._functions.values():
                function(b"")

        if self._functions:
            with_no_complaint(set_all)

    def close(self) -> None:
        """Let go of the copies."""
        while self._held:
            self._held.pop().release()


def _first(held: Held, names: tuple[str, ...]) -> int:
    return next((address for name in names if (address := held.address(name))), 0)


def with_no_complaint(action: Callable[[], None]) -> None:
    """Do something, and take MKL's complaint out of what is printed to standard error meanwhile."""
    sink = Sink()
    try:
        stream = Redirected(2, sink.open())
        try:
            action()
        finally:
            stream.end()
            said = b"".join(
                line
                for line in sink.read().splitlines(keepends=True)
                if not line.startswith(_COMPLAINT)
            )
            with contextlib.suppress(OSError):
                if stream.outside is not None:
                    write_all(stream.outside, said)
            stream.close()
    finally:
        sink.close()
