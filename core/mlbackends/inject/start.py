"""What a program is started with, what is refused before it starts, and its start in our place."""

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import which
from mlbackends.base.specifiers import satisfies
from mlbackends.inject.steps import Plan
from mlbackends.inject.target import Target
from mlbackends.switches.startup import refuse_capability
from mlbackends.switches.table import OURS, SWITCHES, TORCH, Switch

#: The variable with the steps of the import hook, as JSON.
STEPS_VARIABLE = "MLBACKENDS_CARRIED"
#: The folder whose sitecustomize.py is the import hook.
HOOK_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
_PATH = "PYTHONPATH"
_SHELL = "/bin/sh"
_PARTS = {"cuda": "CUDA", "cudnn": "cuDNN", "xpu": "XPU, for Intel GPUs"}
#: Values that need a part of torch which the switch itself does not need.
_NEEDED_BY_VALUES = {("cuda.preferred_linalg_library", "magma"): "cuda"}


def environment_with(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a program's whole environment. Raises BadInput where the hook cannot be put on its path."""
    merged = dict(environment)
    steps = msgspec.json.encode(plan.steps).decode() if plan.steps else None
    for name, text in {**plan.variables, STEPS_VARIABLE: steps}.items():
        if text is None:
            merged.pop(name, None)
        else:
            merged[name] = text
    if not plan.steps:
        return merged
    if os.pathsep in HOOK_FOLDER or not os.path.isfile(os.path.join(HOOK_FOLDER, "sitecustomize.py")):
        raise BadInput(f"{HOOK_FOLDER} cannot be put on {_PATH}", "install mlbackends in another folder")
    # An empty entry would mean the current folder.
    folders = [folder for folder in merged.get(_PATH, "").split(os.pathsep) if folder != HOOK_FOLDER]
    merged[_PATH] = os.pathsep.join([HOOK_FOLDER, *(folders if folders != [""] else [])])
    return merged


# ---- what can be refused before the start; the rest, the import hook finds out ----


def needs_target(values: Mapping[str, object]) -> bool:
    """Return whether it matters which Python and which torch the command starts."""
    switches = [SWITCHES[name] for name, value in values.items() if value is not None]
    return any(switch.of_torch and (switch.needs or not _libraries(switch)) for switch in switches)


def refuse(values: Mapping[str, object], plan: Plan, target: Target | None) -> None:
    """Raise BadInput where a value cannot get into the program that a command starts.

    target: None where that program is unknown; then only what holds for this machine is refused.
    """
    pairs = [(SWITCHES[name], value) for name, value in values.items() if value is not None]
    for switch, value in pairs:
        if switch.name == "cpu.capability":
            try:
                refuse_capability(str(value))
            except ValueError as error:
                raise BadInput(f"{switch.name} cannot be {value}: {error}") from None
    if target is None:
        return
    by_hook = [step.name for step in plan.steps if step.writes]
    if target.hook_ignored_by and by_hook:
        raise BadInput(
            f"python {target.hook_ignored_by} ignores PYTHONPATH or sitecustomize, and so the"
            f" import hook that sets {', '.join(by_hook)}",
            f"start the program without {target.hook_ignored_by}; -s and -P work with the hook",
        )
    torch = target.torch
    for switch, value in pairs:
        if not switch.of_torch:
            continue
        if torch is None:
            is_read = OURS in switch.used_by and "mlbackends" in target.modules
            if not _libraries(switch) and not is_read:
                raise BadInput(
                    f"{switch.name} is read by torch, and the environment of {target.executable} has no"
                    " torch",
                    "start the program by the python of the environment that has torch",
                )
            continue
        shown = f"{switch.name}={switch.kind.written(value)}"
        since = switch.needed_torch(value)
        if since and torch.version and satisfies(torch.version, f"<{since}.dev0"):
            raise BadInput(
                f"{shown} needs torch {since} or newer; {torch.location} is torch {torch.version}",
                "start the program where that is installed",
            )
        needed = switch.needs or _NEEDED_BY_VALUES.get((switch.name, str(value)), "")
        if needed and torch.parts is not None and needed not in torch.parts:
            raise BadInput(
                f"{shown} needs a torch that was built with"
                f" {_PARTS[needed]}; {torch.location} is torch {torch.version}, which was not"
            )
        is_einsum = switch.module == "opt_einsum" and value is not False
        if is_einsum and "opt_einsum" not in target.modules:
            raise BadInput(
                f"{shown} needs opt_einsum, which the environment of {target.executable} lacks",
                "install opt-einsum there",
            )


def _libraries(switch: Switch) -> set[str]:
    return set(switch.used_by) - {OURS, TORCH}


# ---- the start --------------------------------------------------------------


def startable(command: Sequence[str], search_path: str) -> list[str]:
    """Return a command that can be started: a Python script that is not executable gets our python.

    Raises BadInput for what is not a program.
    """
    program = command[0]
    if which(program, search_path):
        return list(command)
    if is_plain_script(program, search_path):
        return [sys.executable, *command]
    if os.path.isfile(program) and os.path.dirname(program):
        raise BadInput(f"{program} is not executable", "start it by its interpreter")
    hint = "name a program on PATH, or one by its path"
    raise BadInput(f"{program} is not a program that can be run", hint)


def is_plain_script(program: str, search_path: str) -> bool:
    """Return whether a program is a Python script that does not start by itself."""
    return program.endswith(".py") and os.path.isfile(program) and not which(program, search_path)


def replace_process(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Put a program in the place of this process, so that signals, terminal and exit code are its own.

    Raises BadInput where it cannot be started.
    """
    path = which(command[0], environment.get("PATH", os.defpath))
    if os.name == "nt":  # where a process cannot give its place to a program
        from mlbackends.host.job_object import run_in_our_place

        try:
            code = run_in_our_place([path, *command[1:]], environment)
            # Windows has codes such as 0xC0000005, which Python takes only as negative numbers.
            raise SystemExit(code if code < 1 << 31 else code - (1 << 32))
        except (OSError, ValueError) as error:
            raise not_started(command[0], error) from None
    # Python ignores these two for itself, and what is ignored stays so in the next program.
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        try:
            os.execve(path, list(command), dict(environment))  # noqa: S606  it is what the user runs
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script that names no interpreter is the shell's, as in execvp(3).
            os.execve(_SHELL, [_SHELL, path, *command[1:]], dict(environment))  # noqa: S606
    except (OSError, ValueError) as error:
        raise not_started(command[0], error) from None


def not_started(program: str, error: OSError | ValueError) -> BadInput:
    """Return what to raise for a program that the system does not start."""
    why = error.strerror if isinstance(error, OSError) else str(error)
    return BadInput(f"{program} cannot be started: {why}")
