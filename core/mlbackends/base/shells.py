"""How a variable is set, and a word quoted, in sh, in PowerShell and in cmd.

Sources: about_Quoting_Rules of PowerShell, which takes four typographic quotes for '; `set /?` of cmd.
"""

import os
import shlex
from collections.abc import Mapping, Sequence

from mlbackends.base.errors import BadInput, shown

SHELLS = ("sh", "powershell", "cmd")
_PROGRAMS = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "busybox"), "sh"),
    **dict.fromkeys(("powershell", "pwsh", "powershell_ise"), "powershell"),
    "cmd": "cmd",
}
#: What PowerShell takes for a quote; in quotes each is doubled.
_QUOTES = "'\u2018\u2019\u201a\u201b"
#: What cmd takes for its own inside of quotes.
_SPECIAL = '%"\r\n'


def assignment(name: str, text: str, shell: str) -> str:
    """Return the command that sets a variable. Raises BadInput for a value that cmd cannot hold."""
    if shell == "powershell":
        quoted = "".join(sign * (1 + (sign in _QUOTES)) for sign in text)
        return f"$env:{name} = '{quoted}'"
    if shell == "sh":
        return f"export {name}={shlex.quote(text)}"
    if not text.isprintable() or any(sign in text for sign in _SPECIAL):
        hint = "--shell powershell or --format json can"
        raise BadInput(f"{name} is {shown(text)}, which `set` of cmd cannot express", hint)
    return f'set "{name}={text}"'


def command_line(words: Sequence[str]) -> str:
    """Return words as a command line that can be typed on this system."""
    if os.name != "nt":
        return shlex.join(words)
    import subprocess

    return subprocess.list2cmdline(words)


def in_powershell(command: str) -> str:
    """Return a command of one of our hazards, written for sh, as PowerShell takes it."""
    verb, _, rest = command.partition(" ")
    if verb == "unset":
        return f"Remove-Item Env:{rest}"
    if verb == "export":
        name, _, text = rest.partition("=")
        return assignment(name, "".join(shlex.split(text)), "powershell")
    return f"& {command}" if command.startswith("'") else command


def own_shell(programs: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the shell of Windows that somebody types in.

    programs: the names of the processes above ours, the nearest first. environment: used if they are unknown.
    """
    for program in programs:
        name = program.lower().removesuffix(".exe")
        if name in _PROGRAMS:
            return _PROGRAMS[name]
    if environment.get("MSYSTEM"):
        return "sh"
    return "cmd" if environment.get("PROMPT") else "powershell"
