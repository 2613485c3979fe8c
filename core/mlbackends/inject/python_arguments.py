"""What a Python interpreter makes of its arguments, as far as a hook in its environment is concerned.

Source: Python documentation, "Command line and environment".
"""

from collections.abc import Sequence

from msgspec import Struct

#: -I and -E read no PYTHONPATH; -S imports no sitecustomize.
_WITHOUT_HOOK = "IES"
_WITH_VALUE = "WX"


class PythonArguments(Struct, frozen=True):
    """hook_ignored_by: the option that makes Python pass over PYTHONPATH or sitecustomize, "" if none.

    program: the script that runs, "" for code, a module or none. has_own_folder: whether the script's
    folder, or the current one, stands first on the import path.
    """

    hook_ignored_by: str
    program: str
    has_own_folder: bool


def python_arguments(arguments: Sequence[str]) -> PythonArguments:
    """Read an interpreter's arguments up to the program and its own."""
    ignored_by, has_own_folder, program, at = "", True, "", 0
    while at < len(arguments):
        argument = arguments[at]
        at += 1
        if argument == "--":
            program = arguments[at] if at < len(arguments) else ""
            break
        if argument == "-" or not argument.startswith("-"):
            program = argument.removeprefix("-") if argument == "-" else argument
            break
        if argument.startswith("--"):
            at += argument == "--check-hash-based-pycs"
            continue
        letters = argument[1:]
        code = next((i for i, letter in enumerate(letters) if letter in f"cm{_WITH_VALUE}"), None)
        for letter in letters[:code]:
            has_own_folder = has_own_folder and letter not in "IP"
            if letter in _WITHOUT_HOOK:
                ignored_by = ignored_by or f"-{letter}"
        if code is not None and letters[code] in "cm":
            break
        # -W and -X have their value behind them, or in the next argument.
        at += code is not None and code == len(letters) - 1
    return PythonArguments(ignored_by, program, has_own_folder)
