"""Functions that torch.compile leaves whole: it breaks its graph there, and calls them as they are.

Our operations read memory, which does not exist while a graph is captured. torch need not be installed: its
compiler looks for the mark on a function, and a call looks for the compiler in this process.
"""

import sys
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

_REASON = "mlbackends computes outside of graphs"


def is_compiling() -> bool:
    """Return whether torch's compiler is tracing the caller."""
    of_torch: Any = getattr(sys.modules.get("torch.compiler"), "is_compiling", None)
    return of_torch is not None and of_torch()


def untraced(function: "Callable[Parameters, Result]") -> "Callable[Parameters, Result]":
    """Return a function that torch's compiler neither traces nor compiles, nor what it calls."""

    @wraps(function)
    def whole(*args: "Parameters.args", **kwargs: "Parameters.kwargs") -> "Result":
        compiler: Any = sys.modules.get("torch._dynamo")
        if compiler is None or not hasattr(compiler, "disable"):
            return function(*args, **kwargs)
        # Where nothing is traced, disabling the compiler would only cost time. The compiler traces this
        # too: is_compiling() is True for it, and keeps it from the rest, which it cannot trace.
        if "torch.compiler" in sys.modules and not is_compiling():
            frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
            idle: Any = getattr(frames, "get_eval_frame_callback", lambda: ...)
            if idle() is None:
                return function(*args, **kwargs)
        # The compiler looks at the code of `whole` alone, which all of our functions share: it would
        # compile that for each of them, and complain after eight.
        skip = getattr(getattr(compiler, "eval_frame", None), "skip_code", None)
        if skip is not None:
            skip(marked.__code__)
        outside: Callable[Parameters, Result] = compiler.disable(function)
        return outside(*args, **kwargs)

    marked: Any = whole
    marked._torchdynamo_disable = True  # noqa: SLF001  the mark that torch.compiler.disable leaves
    marked._torchdynamo_disable_msg = _REASON  # noqa: SLF001
    return whole
