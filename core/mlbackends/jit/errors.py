"""What lowering, calling, saving and loading raise.

The types are those of torch's JIT: nearly all are RuntimeErrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.model.errors import BadInput, MlBackendsError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


class JitError(MlBackendsError, RuntimeError):
    """Something was registered, lowered or answered wrongly."""


class NotAModule(MlBackendsError, AttributeError):
    """What was to be lowered is no object with methods."""


class BackendNotAvailable(JitError):
    """The backend says that it cannot run here: at a call, or when a lowered module is loaded."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("Backend is not available.")

    def __reduce__(self) -> tuple[type[BackendNotAvailable], tuple[()]]:
        return BackendNotAvailable, ()


class CallMismatch(JitError, TypeError):
    """The arguments of a call do not fit the signature of the lowered method."""


class BadOutput(JitError):
    """What a backend returned is not what the interface or the original method promises."""


class NotLoadable(BadInput, RuntimeError):
    """A file that holds no lowered module, a torn one, or one of another version."""


class DelegateError(JitError):
    """For backends to raise from `execute`: the failure, and the debug handle where it happened.

    The lowered module adds the line of the original method that the handle stands for.
    """

    def __init__(self, message: str, debug_handle: int | None = None) -> None:
        super().__init__(message)
        self.debug_handle = debug_handle


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'this'?" where a known name is near, else ""."""
    near = nearest(name, tuple(known))
    return f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
