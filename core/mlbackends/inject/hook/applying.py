"""Writes the switches of `backends run` into a torch that has been imported, and reads each back.

Like the hook, it imports nothing of ours. If a switch cannot be applied, the program ends with a line
on standard error and exit code 2.
"""

import contextlib
import importlib
import json
import os
import sys
import warnings

TYPE_CHECKING = False  # as in the hook
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn


class _Refused(Exception):
    """Why a switch does not hold."""


def apply(torch: "ModuleType", text: str) -> None:
    """Apply the steps in order, then read all back: a later one may have undone an earlier."""
    try:
        steps = json.loads(text)
        with warnings.catch_warnings():
            # Who set the switch knows what it means; with -W error, torch would raise.
            warnings.simplefilter("ignore")
            for action in (_write, _compare):
                for step in steps:
                    try:
                        action(torch, step)
                    except Exception as error:  # noqa: BLE001  whatever torch raises
                        shown = "{}={}".format(step["name"], json.dumps(step["value"]))
                        refused = isinstance(error, _Refused)
                        why = str(error) if refused else "it raised " + _first_line(error)
                        version = getattr(torch, "__version__", "of no version")
                        _end(f"{shown} cannot be applied to torch {version}: {why}")
    except Exception as error:  # noqa: BLE001  as above
        _end("the switches cannot be applied: " + _first_line(error))


def _write(torch: "ModuleType", step: "dict[str, Any]") -> None:
    path = step.get("attribute") or step.get("call")
    if not path:
        return
    holder, name = _holder(torch, path)
    found: Any = None
    try:
        found = getattr(holder, name)
    except AttributeError:  # torch takes an unknown name, and does nothing
        raise _Refused("it has no " + path) from None
    except Exception:  # noqa: BLE001, S110  as above
        pass  # older precision switches cannot be read if newer ones are set, but they can be written
    if step.get("attribute"):
        setattr(holder, name, step["argument"])
    elif step.get("keyword"):
        found(**{step["keyword"]: step["argument"]})
    else:
        found(step["argument"])


def _compare(torch: "ModuleType", step: "dict[str, Any]") -> None:
    for path, expected in step.get("reads", ()):
        if path in _STARTS_HIP and getattr(getattr(torch, "version", None), "hip", None):
            continue
        holder, name = _holder(torch, path)
        found = getattr(holder, name, _ABSENT)
        if found is _ABSENT:
            raise _Refused("it has no " + path)
        found = _plain(found() if callable(found) else found)
        if expected is not None and (
            found != expected or isinstance(found, bool) != isinstance(expected, bool)
        ):
            raise _Refused(f"{path} is {json.dumps(found, default=repr)} there")


_ABSENT = object()
#: On AMD's GPUs these look at the devices, and a process that has done so cannot fork and use them.
_STARTS_HIP = ("torch.backends.cuda.preferred_blas_library",)


def _holder(torch: "ModuleType", path: str) -> "tuple[Any, str]":
    """Return the object that has the last name of a path such as torch.backends.cudnn.enabled."""
    names = path.split(".")
    holder: Any = torch
    for at in range(1, len(names) - 1):
        if not hasattr(holder, names[at]):
            try:
                importlib.import_module(".".join(names[: at + 1]))
            except ImportError:
                raise _Refused("it has no " + path) from None
        holder = getattr(holder, names[at])
    return holder, names[-1]


def _plain(value: "Any") -> "Any":
    """Return a value of torch as JSON has it: a member of an enumeration by its name."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(getattr(value, "name", value)).lower()


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return "{}: {}".format(type(error).__name__, lines[0] if lines else "")


def _end(message: str) -> "NoReturn":
    """End the process: an exception could be caught, and the program go on without its switches."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    message = "".join(character if character.isprintable() else " " for character in message)
    with contextlib.suppress(OSError):
        os.write(2, f"backends run: {message}\n".encode("utf-8", "backslashreplace"))
    os._exit(2)
