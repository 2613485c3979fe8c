"""torch's `cuda.cufft_plan_cache`: how many cuFFT plans each device may keep.

This library computes no transforms, so its caches are empty. Their sizes are kept for each device and
checked as in torch.
"""

from threading import RLock
from typing import TYPE_CHECKING

from mlbackends.base.errors import suggestion
from mlbackends.libraries.cuda import in_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_DEFAULT_MAXIMUM = 4096
_LARGEST_MAXIMUM = 2**63 - 1

#: The largest number of plans, by the index of a device; a device that is not here has the default.
_maximums: dict[int, int] = {}
_lock = RLock()


class cuFFTPlanCacheAttrContextProp:  # noqa: N801  torch's name
    """An attribute of a cache: a getter and a setter that take the device's index.

    A setter that is a text makes the attribute read-only; the text is the reason.
    """

    def __init__(self, getter: "Callable[[int], int]", setter: "Callable[[int, Any], None] | str") -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, obj: "Any", objtype: object) -> "Any":
        return self if obj is None else self.getter(obj.device_index)

    def __set__(self, obj: "Any", val: object) -> None:
        if isinstance(self.setter, str):
            raise RuntimeError(self.setter)  # noqa: TRY004  torch's type
        self.setter(obj.device_index, val)


def _existing(device: int) -> int:
    """Return the index of a device. Raises RuntimeError where there is no such device."""
    count = in_process.device_count()
    if not 0 <= device < count:
        raise RuntimeError(
            f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {device}"
        )
    return device


def _set_maximum(device: int, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"max_size expects an int, but got {type(value).__name__}")
    if not 0 <= value <= _LARGEST_MAXIMUM:
        raise RuntimeError(f"max_size must be non-negative and below 2**63, but got {value}")
    _maximums[_existing(device)] = value


class cuFFTPlanCache:  # noqa: N801  torch's name
    """The plan cache of one device: `size`, `max_size` and `clear()`.

    Any use raises RuntimeError if there is no such device.
    """

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    size = cuFFTPlanCacheAttrContextProp(
        lambda device: _existing(device) * 0,
        ".size is a read-only property: the number of plans in the cache."
        " To change the largest number, set .max_size",
    )
    max_size = cuFFTPlanCacheAttrContextProp(
        lambda device: _maximums.get(_existing(device), _DEFAULT_MAXIMUM), _set_maximum
    )

    def clear(self) -> None:
        """Empty the cache, which holds no plans here."""
        _existing(self.device_index)


_ATTRIBUTES = ("size", "max_size", "clear")
#: The kinds of devices that torch knows.
_KINDS = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
    "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class cuFFTPlanCacheManager:  # noqa: N801  torch's name
    """Every device's plan cache: indexed by a device, or used as the current device's.

    An index is an int, a text such as "cuda:0", or an object with `type` and `index`, as torch's.
    Raises RuntimeError for a device that does not exist, ValueError for what is not a CUDA device, and
    AssertionError if the current device is needed and there is no CUDA device.
    """

    #: One cache per device, in order; [] until a device is used.
    caches: "list[cuFFTPlanCache]"

    def __init__(self) -> None:
        object.__setattr__(self, "caches", [])

    def __getitem__(self, device: object) -> cuFFTPlanCache:
        index = index_of(device)
        _existing(index)
        with _lock:
            if index >= len(self.caches):
                last = max(index + 1, in_process.device_count())
                self.caches.extend(map(cuFFTPlanCache, range(len(self.caches), last)))
        return self.caches[index]

    def __getattr__(self, name: str) -> "Any":
        if name not in _ATTRIBUTES:
            raise _unknown(self, name)
        return getattr(_current(), name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _ATTRIBUTES or name == "clear":
            raise _unknown(self, name)
        setattr(_current(), name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ATTRIBUTES})


def _current() -> cuFFTPlanCache:
    if not in_process.device_count():
        raise AssertionError("no CUDA device is current: the driver shows none (torch's message:"
                             " Torch not compiled with CUDA enabled)")  # fmt: skip
    return cuFFTPlanCache(in_process.current_device())


def index_of(device: object) -> int:
    """Return the index of a device given as an int, a text such as "cuda:0", or torch's device."""
    if isinstance(device, int):
        return int(device)
    kind, number = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(device, str):
        kind, _, text = device.partition(":")
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
        if kind not in _KINDS or (text and number is None):
            raise RuntimeError(f"Invalid device string: {device!r}; a device is like 'cuda:0'")
    if isinstance(kind, str) and kind != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    if not isinstance(number, int):
        raise ValueError(  # noqa: TRY004  torch's type
            f"Expected a device with a specified index or an integer, but got: {device!r}"
        )
    return number


def _unknown(manager: object, name: str) -> AttributeError:
    message = f"cufft_plan_cache has no attribute {name!r}{suggestion(name, _ATTRIBUTES[:2])}"
    if name in ("clear", "caches"):
        message = f"cufft_plan_cache.{name} cannot be set"
    return AttributeError(message, name=name, obj=manager)


cufft_plan_cache = cuFFTPlanCacheManager()
