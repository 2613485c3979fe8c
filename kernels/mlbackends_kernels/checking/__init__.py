"""The programs of the processes of `sdpa check`: one for each backend, the exact values, the speeds."""

import os


def program(name: str) -> str:
    """Return the path of a file in this folder, for interpreters that cannot import mlbackends."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
