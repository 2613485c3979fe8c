"""Which interpreter a script is started by: its first line, and the detour of installers around long paths.

Source: execve(2), "Interpreter scripts"; env(1); the launchers that pip and uv write for console scripts.
"""

import os
import shlex

_LIMIT = 4096
_SHELLS = ("sh", "bash", "dash")


def interpreter_of(path: str) -> tuple[str, ...]:
    """Return the interpreter of a script and the options before the script's name; () where none is told.

    () as well where a shell runs it, and may start anything.
    The first is a path, or a bare name that is looked up on PATH.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read(_LIMIT).decode(errors="surrogateescape").split("\n")
    except (OSError, ValueError):
        return ()
    if not lines[0].startswith("#!"):
        return ()
    # The kernel passes all that follows the interpreter as one argument.
    interpreter, _, argument = lines[0][2:].strip().partition(" ")
    argument = argument.strip()
    name = os.path.basename(interpreter)
    if name == "env":
        return _behind_env(argument)
    if name in _SHELLS:
        return _behind_shell(lines[1] if len(lines) > 1 else "")
    return (interpreter, argument) if argument else (interpreter,) if interpreter else ()


def _behind_env(argument: str) -> tuple[str, ...]:
    """Return what env starts: its one word, or with -S several."""
    words = [argument]
    for beginning in ("-S", "--split-string=", "-vS"):
        if argument.startswith(beginning):
            words = _split(argument.removeprefix(beginning))
    while words and "=" in words[0] and not words[0].startswith("-"):
        del words[0]
    # With options, such as -i, what it starts may not get our variables.
    return () if not words or not words[0] or words[0].startswith("-") else tuple(words)


def _behind_shell(line: str) -> tuple[str, ...]:
    """Return the interpreter where the script is shell and Python at once: '''exec' /python "$0" "$@"."""
    words = _split(line) if line.startswith("'''exec'") else []
    if words[:1] != ["exec"] or "$0" not in words:
        return ()
    command = words[1 : words.index("$0")]
    return () if not command or any("$" in word for word in command) else tuple(command)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return []
