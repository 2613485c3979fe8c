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
        except OSError:  # nobody reads: the other way ends as that must
            pass
        else:
            return
    import gc
    import warnings

    # A warning of the library is a line as all messages are, without the place in our code.
    warnings.formatwarning = lambda message, *_, **__: f"backends: {message}\n"

    # The process lives for a fraction of a second: looking for cycles in what the imports made, then
    # and once more at its end, takes a sixth of that.
    gc.disable()
    from mlbackends_cli.main import guarded_main

    code = guarded_main(sys.argv[1:])
    gc.freeze()
    sys.exit(code)
