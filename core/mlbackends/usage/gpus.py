"""What NVML says of the GPUs now: utilisation, memory, temperature, power and processes.

NVML is opened in a process of its own, which stays from sample to sample; one that hangs or crashes costs
the GPUs' lines for a minute and nothing else. Source: NVML API reference.
"""

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from mlbackends.base.reader import Reader, TooLate
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.host import Host
from mlbackends.libraries.cuda import driver, nvml
from mlbackends.model.usage import GpuProcess, GpuUsage

_SECONDS = 5.0
#: The driver may have to wake eight GPUs first.
_FIRST_SECONDS = 30.0
_RETRY_SECONDS = 60.0

#: The call of NVML for each field, and how its answer is read.
_READINGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("Name", lambda name: name if isinstance(name, str) else ""),
    "mig": ("MigMode", lambda modes: modes[0] == 1),
    "memory_bytes": ("MemoryInfo", lambda memory: memory.total),
    "memory_used_bytes": ("MemoryInfo", lambda memory: memory.used),
    "utilisation_percent": ("UtilizationRates", lambda rates: float(rates.gpu)),
    "temperature_celsius": ("Temperature", int),
    "power_watts": ("PowerUsage", lambda milliwatts: milliwatts / 1000),
    "power_limit_watts": ("EnforcedPowerLimit", lambda milliwatts: milliwatts / 1000),
}

#: The GPUs, and why they could not be read.
Sample = tuple[tuple[GpuUsage, ...], Reason | None]


class Gpus:
    """Reads the GPUs by the copy of NVML that programs get; `close` ends its process."""

    def __init__(self, host: Host) -> None:
        found = driver.driver_libraries(host, "nvidia", "libnvidia-ml")
        whole = [library for library in found if not library.reasons]
        self._path = next((library.path for library in whole if library.wins), "")
        self._reader: Reader | None = None
        self._problem: Reason | None = None
        self._retry_at = 0.0

    def read(self) -> Sample:
        """Return every GPU; () and no reason where there is no NVML."""
        if not self._path or time.monotonic() < self._retry_at:
            return (), self._problem
        try:
            seconds = _SECONDS if self._reader else _FIRST_SECONDS
            self._reader = self._reader or Reader(os.environ)
            is_result, answer = self._reader.answer(seconds, (sample, self._path))
            if not is_result:
                raise answer
        except (TooLate, EOFError, OSError) as error:
            code, how = "crashed", "ended its process"
            if isinstance(error, TooLate):
                code, how = "timed-out", f"gave no answer in {seconds:g} s"
            self._problem = Reason(code, f"{self._path} {how}; it is tried again in a minute")
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.close()
            return (), self._problem
        found: Sample = answer
        return found

    def close(self) -> None:
        """End NVML's process."""
        if self._reader is not None:
            self._reader.end()
        self._reader = None


@cache
def _opened(path: str) -> Any:
    bound = nvml.bound(ctypes.CDLL(path))
    nvml.must(bound, "nvmlInit")
    return bound


def sample(path: str) -> Sample:
    """Return what one copy of NVML says; called in a process that is kept for it."""
    try:
        bound = _opened(path)
        handles = nvml.all_gpus(bound, nvml.must(bound, "nvmlDeviceGetCount"))
    except NotUsable as stop:
        return (), stop.reason
    return tuple(of_gpu(bound, index, handle) for index, handle in handles), None


def of_gpu(bound: Any, index: int, handle: Any) -> GpuUsage:
    """Return what NVML says of one GPU; what it refuses is left out."""
    if isinstance(handle, Reason):
        return GpuUsage(index, reasons=(handle,))
    fields: dict[str, Any] = {}
    reasons: tuple[Reason, ...] = ()
    try:
        for field, (function, value_of) in _READINGS.items():
            sensor = (0,) if function == "Temperature" else ()  # the sensor of the GPU itself
            if (
                found := nvml.query(bound, f"nvmlDeviceGet{function}", handle, *sensor)
            ) is not None:
                fields[field] = value_of(found)
    except nvml.GpuGone as gone:
        reasons = (gone.reason,)
    rows = nvml.processes(bound, [(index, handle)]) if not reasons else []
    processes = (
        GpuProcess(row["pid"], str(row.get("name", "")), row.get("memory_bytes"))  # type: ignore[arg-type]
        for row in rows
    )
    return GpuUsage(index, **fields, processes=tuple(processes), reasons=reasons)
