"""The command line: it parses, asks the engine, and hands records to a renderer."""

import sys

__all__ = ["run"]


def run() -> None:
    """Run `backends`: what the console script calls."""
    if sys.argv[1:] == ["--version"]:  # without click, which takes most of the time
        from mlbackends import __version__

        sys.stdout.write(f"backends {__version__}\n")
        return
    from mlbackends.cli.main import guarded_main

    sys.exit(guarded_main(sys.argv[1:]))
