"""Compute problems with one library, in the environment that is inspected; one JSON object a line.

    python -P serve.py LIBRARY.py < problems

An empty object asks about the library. Answers are as `mlbackends.isolation.service` reads them.
"""

import ctypes
import hashlib
import json
import os
import runpy
import signal
import sys
import warnings
from types import SimpleNamespace
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_MOST_WORDS = 300
#: PR_SET_PDEATHSIG: a library that hangs must not survive the command. Source: prctl(2).
_DIE_WITH_PARENT = 1


def main() -> None:
    """Answer the lines of standard input."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    warnings.simplefilter("ignore")
    try:
        arithmetic = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "arithmetic.py")))
        library = SimpleNamespace(**runpy.run_path(sys.argv[1]))
        offered = {name: _types(name, library.TYPES) for name in library.OPERATIONS}
        about: dict[str, Any] = {"version": str(library.VERSION), "offered": offered}
        about["has_layouts"] = hasattr(library, "laid_out")
    except ModuleNotFoundError as error:
        about = {"cannot": f"the module {error.name} is not installed in that environment"}
    except Exception as error:  # noqa: BLE001  foreign code may raise anything
        about = {"cannot": f"its import fails: {_words(error)}"}
    for line in sys.stdin:
        request = json.loads(line)
        answer = _answer(library, arithmetic, request) if request else about
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def _types(operation: str, types: tuple[str, ...]) -> list[str]:
    """Return the element types of an operation, of those that a library has."""
    if operation == "gemm":
        return [*types]
    if operation == "cast":  # from float32
        return [one for one in types if one in ("bfloat16", "float16")]
    return [one for one in types if one.startswith("complex") == (operation == "fft")]


def _answer(library: Any, arithmetic: Any, problem: dict[str, Any]) -> dict[str, Any]:
    """Return how right the library is for one problem."""
    operation = library.OPERATIONS[problem["operation"]]
    arrays = arithmetic.inputs(problem)
    try:
        dtype = "float32" if problem["operation"] == "cast" else problem["dtype"]
        made = getattr(library, "tensor", arithmetic.np.ascontiguousarray)
        read = getattr(library, "array", arithmetic.np.asarray)
        tensors = [made(one, dtype) for one in arrays]
        if problem["layout"] != "contiguous":
            tensors = [library.laid_out(one, problem["layout"], problem["sizes"]) for one in tensors]
        first, second = (read(operation(*tensors, **arithmetic.options(problem))) for _ in range(2))
    except Exception as error:  # noqa: BLE001  foreign code may raise anything
        return {"answer": "refused", "message": _words(error)}
    found = arithmetic.judged(problem, arrays, first)
    found["hint"] = getattr(library, "HINT", "") if found.get("computed_as", "float32") != "float32" else ""
    found["digest"] = hashlib.sha256(first.tobytes()).hexdigest()[:16]
    return {**found, "repeats": first.tobytes() == second.tobytes()}


def _words(error: BaseException) -> str:
    """Return an exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_WORDS]


if __name__ == "__main__":
    main()
