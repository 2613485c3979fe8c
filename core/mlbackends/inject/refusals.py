"""What can be told to fail before a program starts; the rest, the import hook finds out in it."""

import os
from collections.abc import Mapping

from mlbackends.inject.planning import Plan
from mlbackends.inject.target import Target, Torch
from mlbackends.model.errors import BadInput
from mlbackends.switches.table import FLAGS, OURS, TORCH, Flag

_PARTS = {"cuda": "CUDA", "cudnn": "cuDNN", "xpu": "XPU, for Intel GPUs"}
#: Values that need a part of torch which the switch itself does not need.
_NEEDED_BY_VALUES = {("cuda.preferred_linalg_library", "magma"): "cuda"}
#: Where each instruction set is; elsewhere torch passes over the variable with a warning.
_MACHINES = {
    "avx2": ("x86_64", "amd64"),
    "avx512": ("x86_64", "amd64"),
    "vsx": ("ppc64le", "ppc64"),
    "zvector": ("s390x",),
    "sve256": ("aarch64", "arm64"),
}


def needs_target(values: Mapping[str, object]) -> bool:
    """Tell whether it matters which Python and which torch the command starts."""
    given = [FLAGS[name] for name, value in values.items() if value is not None]
    return any(flag.of_torch and (flag.needs or not _libraries(flag)) for flag in given)


def refuse(values: Mapping[str, object], plan: Plan, target: Target | None) -> None:
    """Raise BadInput where a value cannot get into the program that a command starts.

    target: None where that program cannot be told; then only what holds for this machine is told.
    """
    given = [(FLAGS[name], value) for name, value in values.items() if value is not None]
    for flag, value in given:
        _refuse_instruction_set(flag, value)
    if target is None:
        return
    _refuse_without_hook(plan, target)
    for flag, value in given:
        if flag.of_torch:
            _refuse_for_torch(flag, value, target)


def _refuse_instruction_set(flag: Flag, value: object) -> None:
    machines = _MACHINES.get(str(value)) if flag.name == "cpu.capability" else None
    here = os.uname().machine.lower()
    if machines and here not in machines:
        raise BadInput(f"{flag.name}={value} is for {machines[0]}; this machine is {here}")


def _refuse_without_hook(plan: Plan, target: Target) -> None:
    by_hook = [step.name for step in plan.steps if step.writes]
    if target.hook_ignored_by and by_hook:
        raise BadInput(
            f"python {target.hook_ignored_by} passes over PYTHONPATH or sitecustomize, and so over the"
            f" import hook that sets {', '.join(by_hook)}",
            f"start the program without {target.hook_ignored_by}; -s and -P go with the hook",
        )


def _refuse_for_torch(flag: Flag, value: object, target: Target) -> None:
    if target.torch is None:
        if not _is_obeyed_without_torch(flag, target):
            raise BadInput(
                f"{flag.name} is torch's to obey, and the environment of {target.executable} has no torch",
                "start the program by the python of the environment that has torch",
            )
        return
    _refuse_for_build(flag, value, target.torch)
    is_wanted = value not in (None, False)
    if flag.module == "opt_einsum" and is_wanted and "opt_einsum" not in target.modules:
        raise BadInput(
            f"{flag.name}={flag.kind.written(value)} needs opt_einsum, and the environment of"
            f" {target.executable} has none",
            "install opt-einsum there",
        )


def _is_obeyed_without_torch(flag: Flag, target: Target) -> bool:
    return bool(_libraries(flag)) or (OURS in flag.obeyed_by and "mlbackends" in target.modules)


def _libraries(flag: Flag) -> set[str]:
    return set(flag.obeyed_by) - {OURS, TORCH}


def _refuse_for_build(flag: Flag, value: object, torch: Torch) -> None:
    needed = flag.needs or _NEEDED_BY_VALUES.get((flag.name, str(value)), "")
    if needed and torch.parts is not None and needed not in torch.parts:
        raise BadInput(
            f"{flag.name}={flag.kind.written(value)} needs a torch that was built with"
            f" {_PARTS[needed]}; {torch.location} is torch {torch.version}, which was not"
        )
