"""The current state of the GPUs from NVML: utilisation, memory, temperature, power and processes.

NVML is opened in a child process that is kept between samples; if it hangs or crashes, only the lines of the
GPUs are missing for a minute. Source: NVML API reference.
"""

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from mlbackends.base.reader import Reader, TooLate
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import open_driver
from mlbackends.libraries.cuda import driver, nvml
from mlbackends.model.usage import GpuProcess, GpuUsage

_SECONDS = 5.0
#: The driver may have to initialise eight GPUs first.
_FIRST_SECONDS = 30.0
_RETRY_SECONDS = 60.0

#: The NVML function of each field, and the conversion of its result.
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

#: The GPUs, and the reason if they could not be read.
Sample = tuple[tuple[GpuUsage, ...], Reason | None]


class Gpus:
    """Reads the GPUs with the copy of NVML that programs load; `close` ends its process."""

    def __init__(self, host: Host) -> None:
        copies = driver.driver_libraries(host, "nvidia", "libnvidia-ml")
        usable = [library for library in copies if not library.reasons]
        self._path = next((library.path for library in usable if library.wins), "")
        self._reader: Reader | None = None
        self._problem: Reason | None = None
        self._retry_at = 0.0

    def read(self) -> Sample:
        """Return every GPU; () and no reason without NVML."""
        if not self._path or time.monotonic() < self._retry_at:
            return (), self._problem
        try:
            seconds = _SECONDS if self._reader else _FIRST_SECONDS
            self._reader = self._reader or Reader(os.environ)
            is_result, answer = self._reader.answer(seconds, (sample, self._path))
            if not is_result:
                raise answer
        except (TooLate, EOFError, OSError) as error:
            code, how = "crashed", "crashed"
            if isinstance(error, TooLate):
                code, how = "timed-out", f"did not answer within {seconds:g} s"
            self._problem = Reason(code, f"{self._path} {how}; the next attempt is in a minute")
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.close()
            return (), self._problem
        result: Sample = answer
        return result

    def close(self) -> None:
        """End NVML's process."""
        if self._reader is not None:
            self._reader.end()
        self._reader = None


@cache
def _opened(path: str) -> Any:
    bound = nvml.bound(open_driver(path)[0])
    nvml.must(bound, "nvmlInit")
    return bound


def sample(path: str) -> Sample:
    """Return the GPUs of one copy of NVML; called in its child process."""
    try:
        bound = _opened(path)
        handles = nvml.all_gpus(bound, nvml.must(bound, "nvmlDeviceGetCount"))
    except NotUsable as stop:
        return (), stop.reason
    return tuple(of_gpu(bound, index, handle) for index, handle in handles), None


def of_gpu(bound: Any, index: int, handle: Any) -> GpuUsage:
    """Return the state of one GPU, without the values that NVML refuses."""
    if isinstance(handle, Reason):
        return GpuUsage(index, reasons=(handle,))
    fields: dict[str, Any] = {}
    reasons: tuple[Reason, ...] = ()
    try:
        for field, (function, value_of) in _READINGS.items():
            sensor = (0,) if function == "Temperature" else ()  # the sensor of the GPU itself
            result = nvml.query(bound, f"nvmlDeviceGet{function}", handle, *sensor)
            if result is not None:
                fields[field] = value_of(result)
    except nvml.GpuGone as gone:
        reasons = (gone.reason,)
    rows = nvml.processes(bound, [(index, handle)]) if not reasons else []
    processes = (
        GpuProcess(row["pid"], str(row.get("name", "")), row.get("memory_bytes"))  # type: ignore[arg-type]
        for row in rows
    )
    return GpuUsage(index, **fields, processes=tuple(processes), reasons=reasons)
