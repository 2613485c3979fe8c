"""The command line: it parses, asks the engine, and hands records to a renderer."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
else:  # `--version` imports nothing
    ModuleType = type(sys)

__all__ = ["INTERRUPTED", "program", "reraise_interrupt", "run"]

INTERRUPTED = "interrupted"
_INTERRUPTED = 130


def run() -> None:
    """Run `backends`."""
    sys.unraisablehook = reraise_interrupt
    if os.name == "nt":  # Ctrl-Break ends it as Ctrl-C does
        import signal

        signal.signal(signal.SIGBREAK, signal.default_int_handler)  # type: ignore[attr-defined]
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
    import warnings

    warnings.formatwarning = _warning_line

    # The process lives for a fraction of a second, a tenth of which would go to looking for cycles.
    gc.disable()
    if sys.argv[1:] == ["info"]:
        # It will open libraries: their process comes up while msgspec and click are imported.
        from mlbackends.isolation import import_msgspec
        from mlbackends.isolation.server import start_early

        start_early()
        import_msgspec()
    _import_click()
    from mlbackends_cli.main import guarded_main

    sys.exit(guarded_main(sys.argv[1:]))


class _StandIn(ModuleType):
    """Has what click always needs of two modules; the module itself is imported for anything else."""

    #: click looks for a translation of each of its texts, and brings none.
    gettext = staticmethod(str)

    @staticmethod
    def ngettext(one: str, many: str, count: int) -> str:
        """Return the text for a number of things."""
        return one if count == 1 else many

    def cleandoc(self, text: str) -> str:
        """Return a text without its indentation."""
        if "\n" not in text and "\t" not in text:
            return text.lstrip()
        cleaned: str = self.__getattr__("cleandoc")(text)
        return cleaned

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        import importlib

        return getattr(importlib.import_module(self.__name__), name)


def _import_click() -> None:
    """Import click without two modules whose import takes a twentieth of a survey."""
    names = [name for name in ("gettext", "inspect") if name not in sys.modules]
    sys.modules.update((name, _StandIn(name)) for name in names)
    try:
        import click  # noqa: F401
    finally:
        for name in names:
            del sys.modules[name]


def _warning_line(message: Warning | str, *_: object, **__: object) -> str:
    """Return a warning of the library as all messages are, without the place in our code."""
    from mlbackends_cli.text.plain import log_line

    return f"backends: {log_line(str(message))}\n"


def reraise_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt again where an interrupt came in a callback, from which nothing can be raised."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    import signal

    # From here it could not be raised either; a moment later it can.
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        from threading import Timer

        Timer(0.01, signal.raise_signal, (signal.SIGINT,)).start()


def program() -> None:
    """Run `backends`, and leave as a child of `multiprocessing` does: what the console script calls.

    To free every object before the end takes a thirtieth of a survey. An interrupt before `guarded_main` or
    behind it, as while click is imported, ends as one in it does.
    """
    code = _INTERRUPTED
    try:
        try:
            run()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        import atexit
        import contextlib
        import threading

        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):  # nobody reads, or it was closed
                stream.flush()
    except KeyboardInterrupt:
        os.write(2, f"backends: {INTERRUPTED}\n".encode())
        code = _INTERRUPTED
    os._exit(code if code < 1 << 31 else code - (1 << 32))  # Windows has codes such as 0xC0000005
