"""What runs in the processes of `sdpa check`: one backend each, the exact values, the machine's speeds."""

import os


def program(name: str) -> str:
    """Return the path of a file of this folder, for other interpreters, which cannot import mlbackends."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
