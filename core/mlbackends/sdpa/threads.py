"""The number of threads of attention on the CPU, which the kernels' library keeps."""

from typing import Any

from mlbackends.base import registry


def get_num_threads() -> int:
    """Return the number of threads that attention on the CPU uses."""
    return int(_threads().get_num_threads())


def set_num_threads(count: int) -> None:
    """Set the number of threads of attention on the CPU."""
    _threads().set_num_threads(count)


def _threads() -> Any:
    return registry.load(f"{registry.KERNELS}.attention_cpu", "threads")
