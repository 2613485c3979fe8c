"""A function of the compiled library, run by several threads at once: ctypes lets go of Python's lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mlbackends.model.errors import counted

if TYPE_CHECKING:
    from collections.abc import Callable


class Together:
    """So many threads as attention on the CPU uses here."""

    def __init__(self) -> None:
        from mlbackends_kernels.attention_cpu.threads import get_num_threads

        self.count = get_num_threads()
        self.told = counted(self.count, "thread")
        self._pool = ThreadPoolExecutor(self.count)

    def run(self, work: Callable[[int], Any]) -> None:
        """Call `work` with the number of each thread, and return when all are done."""
        list(self._pool.map(work, range(self.count)))


def compiled(name: str, *arguments: Any) -> Any:
    """Return a function of the compiled library; None where that was not built, or is older."""
    import ctypes

    from mlbackends_kernels.attention_cpu.library import NotBuilt, library

    try:
        found = getattr(library(), f"mlbackends_attention_{name}")
    except (NotBuilt, AttributeError):
        return None
    found.argtypes, found.restype = arguments, ctypes.c_int64
    return found
