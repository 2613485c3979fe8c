"""The version of this library and of the `backends` command, which the build reads here, and its extras."""

import os

__version__ = "0.1.0"


def install_command(extra: str, *packages: str) -> str:
    """Return the command that installs an extra: from the clone that this runs from, else by name."""
    core = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    is_clone = os.path.isfile(os.path.join(os.path.dirname(core), "pyproject.toml"))
    name = f"-e '.[{extra}]'" if is_clone else f"'mlbackends[{extra}]'"
    others = "".join(f" {package}" for package in packages)
    return f"pip install {name}{others}{' in the clone' * is_clone}"
