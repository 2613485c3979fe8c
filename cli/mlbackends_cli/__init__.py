"""The command line: it parses, asks the engine, and hands records to a renderer."""

import sys

__all__ = ["run"]


def run() -> None:
    """Run `backends`: what the console script calls."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        # Without click, which takes most of the time.
        from mlbackends import __version__

        try:
            sys.stdout.write(f"backends {__version__}\n")
            sys.stdout.flush()
        except OSError:  # what it means that nobody takes it stands in cli.main
            pass
        else:
            return
    import gc
    import warnings

    # What the library warns of is told as all else is, not by the place in our code that asked for it.
    warnings.formatwarning = _as_line

    # The process lives for a fraction of a second: looking for cycles in what the imports made, then
    # and once more at its end, takes a sixth of that.
    gc.disable()
    from mlbackends_cli.main import guarded_main

    code = guarded_main(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def _as_line(message: Warning | str, *place: object, **more: object) -> str:
    del place, more
    return f"backends: {message}\n"
