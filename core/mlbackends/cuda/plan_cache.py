"""The cuFFT plans that each device keeps: `mlbackends.cuda.cufft_plan_cache`.

A plan is costly to make and holds memory, so the least recently used go when there are too many.
Each device has its own cache, whichever object uses it; all of it is per process.
"""

import importlib
from collections import OrderedDict
from contextlib import contextmanager
from threading import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


_USUAL_MAXIMUM = 4096
_LARGEST_MAXIMUM = 2**63 - 1


class Plans:
    """The plans of one device, the one that was used last at the end.

    A plan holds memory until its method `destroy()` is called.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[object, Any] = OrderedDict()
        self._maximum = _USUAL_MAXIMUM
        self._lock = RLock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._plans)

    @property
    def maximum(self) -> int:
        """How many plans are kept at most; 0 keeps none."""
        return self._maximum

    @maximum.setter
    def maximum(self, value: int) -> None:
        with self._lock:
            self._maximum = value
            self._shrink(value)

    def clear(self) -> None:
        """Destroy every plan."""
        with self._lock:
            self._shrink(0)

    @contextmanager
    def borrowed(self, key: object, make: "Callable[[], Any]") -> "Iterator[Any]":
        """Give the plan of a key, made where there is none. No other thread evicts it meanwhile."""
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                plan = make()
                if not self._maximum:
                    try:
                        yield plan
                    finally:
                        plan.destroy()
                    return
                self._shrink(self._maximum - 1)
                self._plans[key] = plan
            self._plans.move_to_end(key)
            yield plan

    def _shrink(self, most: int) -> None:
        while len(self._plans) > most:
            _, plan = self._plans.popitem(last=False)
            plan.destroy()


_plans: dict[int, Plans] = {}
_opening = RLock()


def plans_of(device: int) -> Plans:
    """Return the plans of a device, whether it is there or not."""
    with _opening:
        return _plans.setdefault(device, Plans())


class cuFFTPlanCacheAttrContextProp:  # noqa: N801  torch's name
    """An attribute of a cache: a getter and a setter that take the device's index.

    A setter that is a text makes the attribute read-only; the text is the reason.
    """

    def __init__(
        self, getter: "Callable[[int], int]", setter: "Callable[[int, Any], None] | str"
    ) -> None:
        self.getter = getter
        self.setter = setter

    def __get__(self, obj: "Any", objtype: object) -> "Any":
        return self if obj is None else self.getter(obj.device_index)

    def __set__(self, obj: "Any", val: object) -> None:
        if isinstance(self.setter, str):
            raise RuntimeError(self.setter)  # noqa: TRY004  torch's type
        self.setter(obj.device_index, val)


def _existing(device: int) -> Plans:
    """Return the plans of a device; raises RuntimeError where there is no such device."""
    count = devices().device_count()
    if not 0 <= device < count:
        raise RuntimeError(
            f"cufft_plan_cache: expected 0 <= device index < {count}, but got device with index {device}"
        )
    return plans_of(device)


def _set_maximum(device: int, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"max_size expects an int, but got {type(value).__name__}")
    if not 0 <= value <= _LARGEST_MAXIMUM:
        raise RuntimeError(f"max_size must be non-negative and below 2**63, but got {value}")
    _existing(device).maximum = value


def devices() -> "Any":
    """Return what tells of CUDA's devices, which lies above this package and is loaded by its name."""
    return importlib.import_module("mlbackends_kernels.cuda.devices")


class cuFFTPlanCache:  # noqa: N801  torch's name
    """The plan cache of one device: `size`, `max_size` and `clear()`.

    Raises RuntimeError at any use where there is no such device.
    """

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    size = cuFFTPlanCacheAttrContextProp(
        lambda device: len(_existing(device)),
        ".size is a read-only property: how many plans are in the cache."
        " To change how many there may be, set .max_size",
    )
    max_size = cuFFTPlanCacheAttrContextProp(lambda device: _existing(device).maximum, _set_maximum)

    def clear(self) -> None:
        """Destroy every plan of the device."""
        _existing(self.device_index).clear()


_ATTRIBUTES = ("size", "max_size", "clear")
#: What may stand at the start of a device's name.
_KINDS = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
    "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class cuFFTPlanCacheManager:  # noqa: N801  torch's name
    """Every device's plan cache: indexed by a device, or used as the current device's.

    An index is an int, a text such as "cuda:0", or an object with `type` and `index`, as torch's.
    Raises RuntimeError for a device that is not there, ValueError for what is no CUDA device, and
    AssertionError where there is no CUDA device to be the current one.
    """

    #: One for each device, in their order; [] until a device is used.
    caches: "list[cuFFTPlanCache]"

    def __init__(self) -> None:
        object.__setattr__(self, "caches", [])

    def __getitem__(self, device: object) -> cuFFTPlanCache:
        index = index_of(device)
        _existing(index)
        with _opening:
            if index >= len(self.caches):
                last = max(index + 1, devices().device_count())
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
    if not devices().device_count():
        raise AssertionError("there is no current CUDA device: the driver shows none (torch says:"
                             " Torch not compiled with CUDA enabled)")  # fmt: skip
    return cuFFTPlanCache(devices().current_device())


def index_of(device: object) -> int:
    """Return the index that an int, a text such as "cuda:0" or an object as torch's device means."""
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
    from mlbackends.base.errors import suggestion

    message = f"cufft_plan_cache has no attribute {name!r}{suggestion(name, _ATTRIBUTES[:2])}"
    if name in ("clear", "caches"):
        message = f"cufft_plan_cache.{name} cannot be set"
    return AttributeError(message, name=name, obj=manager)


cufft_plan_cache = cuFFTPlanCacheManager()
