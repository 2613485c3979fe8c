"""The exit codes of every command and their meanings; the manual page of `backends` has this table."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

MEANINGS = {
    0: "The report was made; the answer is yes.",
    1: "The answer is no: a requirement is not met, or the requested value does not exist.",
    2: "Usage error: an unknown name, a bad option, or a file that cannot be read or written as expected.",
    3: "Could not be determined: nothing ran, or a probe failed whose answer --strict or --get needed.",
    4: "A package loads, and then lacks a device or a feature; of `backends resolve` alone.",
    70: "A bug in backends; the message has the path of the traceback.",
    129: "Ended by SIGHUP: its terminal or connection has gone.",
    130: "Interrupted from the keyboard.",
    141: "The reader of the output closed it before the end.",
    143: "Ended by SIGTERM, as by a scheduler or by timeout.",
}
YES, NO, USAGE, UNKNOWN, FALLS_BACK, BUG, _, INTERRUPTED, CLOSED_PIPE, _ = MEANINGS


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP came: as an interrupt, it passes where any other exception of a probe is kept."""


@contextmanager
def cleared_up() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block as an exception does, with exit code 128 + N.

    So a job that is cancelled closes what it has opened. A second signal ends the process at once. A
    signal that is ignored, as by nohup, or handled already stays so; and so do all in a thread other
    than the main one, which cannot change them.
    """
    import signal  # a millisecond of every start

    def leave(number: int, frame: Any) -> NoReturn:
        del frame
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(128 + number)

    signals = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    is_main = threading.current_thread() is threading.main_thread()
    changed = [
        number for number in signals if is_main and number and signal.getsignal(number) is signal.SIG_DFL
    ]
    for changed_signal in changed:
        signal.signal(changed_signal, leave)
    try:
        yield
    except Terminated as stop:
        raise SystemExit(*stop.args) from None
    finally:
        for changed_signal in changed:
            signal.signal(changed_signal, signal.SIG_DFL)
