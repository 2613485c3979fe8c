"""Where the programs lie that other interpreters run: by path, since they know nothing of mlbackends."""

import os


def program(name: str) -> str:
    """Return the path of a file of this folder."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
