"""The `backends` command: its group, and the end of a run; `mlbackends_cli.exits` has the exit codes."""

import contextlib
import errno
import os
import sys
import threading
import warnings
from itertools import pairwise
from typing import NoReturn

import click

from mlbackends.base.errors import MlBackendsError
from mlbackends.base.version import __version__
from mlbackends_cli import exits
from mlbackends_cli.lazy import FolderGroup, explained
from mlbackends_cli.output import log, write
from mlbackends_cli.text.plain import cleaned, log_line

#: Errors of writing that are not ours: no space, or standard output was closed before the start.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
#: The packages with commands; `backends A B` is SUBJECT/commands/A/B.py.
_SUBJECTS = ("report", "attention", "trace", "fleet", "switches", "loading")

main = FolderGroup(
    "mlbackends_cli.commands",
    *(f"mlbackends_cli.{subject}.commands" for subject in _SUBJECTS),
    name="backends",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, prog_name="backends", message="%(prog)s %(version)s")(main)


def command_line() -> int:
    """Run the command of this process, `sys.argv`, and return its exit code."""
    # In the form of our other messages, without the line of our code.
    warnings.formatwarning = lambda text, *_, **__: f"backends: {log_line(str(text))}\n"
    if os.name == "nt":  # Ctrl-Break ends it as Ctrl-C does
        import signal

        signal.signal(signal.SIGBREAK, signal.default_int_handler)  # type: ignore[attr-defined]
    return guarded_main(sys.argv[1:])


def guarded_main(arguments: list[str]) -> int:
    """Run a command and return its exit code; errors become messages, and a bug's traceback a file."""
    sys.unraisablehook = _reraise_interrupt
    if sys.stdout is None:  # closed before this process started: writing to it is an error
        if (nothing := os.open(os.devnull, os.O_RDONLY)) != 1:
            os.dup2(nothing, 1)
            os.close(nothing)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  as long as the process
    try:
        code = main.main(arguments, prog_name="backends", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as stop:
        # click swallows a closed pipe, and leaves this wrapper behind.
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            return _end_without_output(exits.CLOSED_PIPE)
        return stop.code if isinstance(stop.code, int) else exits.YES
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        _fail(arguments, *explained(error, main, arguments))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        log("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:  # end as a program that SIGPIPE killed does
        return _end_without_output(exits.CLOSED_PIPE)
    except MlBackendsError as error:
        _fail(arguments, str(error), error.hint)
        return error.exit_code
    except BaseException as error:  # noqa: BLE001  a bug: one line, and the traceback in a file
        if isinstance(error, OSError) and os.name == "nt" and error.errno == errno.EINVAL:
            return _end_without_output(exits.CLOSED_PIPE)  # how Windows reports a closed pipe
        if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
            _fail(arguments, "no folder for temporary files can be written", "set TMPDIR to one")
            return exits.USAGE
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            log(f"standard output cannot be written: {error.strerror}")
            return _end_without_output(exits.USAGE)
        _report_bug(error, arguments)
        return getattr(error, "exit_code", exits.BUG)
    return code if isinstance(code, int) else exits.YES


def _reraise_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat an interrupt that arrived in a callback, such as `__del__`, which cannot raise exceptions."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import signal

    def repeat(*_: object, error: BaseException = unraisable.exc_value) -> NoReturn:
        raise error

    # This hook cannot raise it either, but the main program can a moment later.
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, repeat)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        threading.Timer(0.01, signal.raise_signal, (signal.SIGINT,)).start()


def _end_without_output(code: int) -> int:
    """Return the exit code; the interpreter finds nothing to flush at its end, which would change it."""
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
    return code


def _fail(arguments: list[str], message: str, hint: str = "") -> None:
    """Report an error; also as a frame, if a reader of many nodes waits for one."""
    log(message, hint)
    framed = "--format=frame" in arguments or ("--format", "frame") in pairwise(arguments)
    if framed or arguments[:2] == ["fleet", "envelope"]:
        from mlbackends.fleet.frames import frames
        from mlbackends.fleet.payload import node_name
        from mlbackends.model.fleet import Envelope, Status

        envelope = Envelope(node=node_name(), status=Status.ERROR, error=message)
        with contextlib.suppress(OSError):
            write("\n".join(frames(envelope)))


def _report_bug(error: BaseException, arguments: list[str]) -> None:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    message = f"this is a bug in backends {__version__}: {type(error).__name__}: {error}"
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="backends-",
            suffix=".traceback",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(text)
    except OSError:
        _fail(arguments, message)

        click.echo(cleaned(text), err=True)
    else:
        _fail(arguments, message, f"the traceback is in {file.name}")
