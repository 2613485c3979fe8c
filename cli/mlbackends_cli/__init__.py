"""The command line: it parses, asks the engine, and hands records to a renderer."""

import os
import sys


def program() -> None:
    """Run `backends`: the console script and `python -m mlbackends` call this.

    The version is printed without click, whose import takes most of the time. The command line itself is
    `mlbackends_cli.main`; an interrupt while that is imported ends as an interrupt of a command does.
    """
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        from mlbackends.base.version import __version__

        try:
            sys.stdout.write(f"backends {__version__}\n")
            sys.stdout.flush()
        except OSError:  # the reader has gone: click reports that as for any other command
            pass
        else:
            return
    try:
        from mlbackends_cli.main import command_line

        code = command_line()
    except KeyboardInterrupt:
        os.write(2, b"backends: interrupted\n")
        code = 130  # exits.INTERRUPTED, without another import
    sys.exit(code)
