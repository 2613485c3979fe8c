"""The command line: it parses, asks the engine, and hands records to a renderer."""

import os
import sys

__all__ = ["program", "run"]


def run() -> None:
    """Run `backends`."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        # Without click, which takes most of the time.
        from mlbackends import __version__

        try:
            sys.stdout.write(f"backends {__version__}\n")
            sys.stdout.flush()
        except OSError:  # nobody reads: the other way ends as that must
            pass
        else:
            return
    import gc
    import gettext
    import warnings

    # A warning of the library is a line as all messages are, without the place in our code.
    warnings.formatwarning = lambda message, *_, **__: f"backends: {message}\n"

    # The process lives for a fraction of a second, a tenth of which would go to looking for cycles.
    gc.disable()
    # click looks for a translation of each of its texts, and brings none.
    translated, gettext.gettext = gettext.gettext, str  # type: ignore[assignment]
    from mlbackends_cli.main import guarded_main

    gettext.gettext = translated
    sys.exit(guarded_main(sys.argv[1:]))


def program() -> None:
    """Run `backends`, and leave as a child of `multiprocessing` does: what the console script calls.

    To free every object before the end takes a thirtieth of a survey.
    """
    try:
        run()
    except SystemExit as stop:
        import atexit
        import contextlib
        import threading

        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):  # nobody reads, or it was closed
                stream.flush()
        os._exit(stop.code if isinstance(stop.code, int) else 1)
