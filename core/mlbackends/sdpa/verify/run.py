"""`sdpa check` and `sdpa bench`: backends compute the problems in turn, and become records."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.isolation.service import Lost
from mlbackends.model.benched import SCHEMA as BENCH_SCHEMA
from mlbackends.model.benched import Benched
from mlbackends.model.checked import SCHEMA, Checked, CheckedProblem, DeviceSpeeds
from mlbackends.model.records import Presence
from mlbackends.sdpa import named_devices
from mlbackends.sdpa.explaining import explained
from mlbackends.sdpa.named_devices import NamedDevice
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify import speed
from mlbackends.sdpa.verify.chips import stated_speeds
from mlbackends.sdpa.verify.problem_check import (
    LOWERED,
    ProblemCheck,
    Rounds,
    measure_request,
)
from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, VALUES, Plan, Processes, started

_BANDWIDTH_CALLS, _BANDWIDTH_SECONDS = 5, 60.0
#: The devices that this machine's processors stand for.
ON_CPU = ("cpu", *LOWERED)

#: Called with how many problems are done, of how many, and the text of the next.
Progress = Callable[[int, int, str], None]


def check(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Checked:
    """Return the result of every backend for every problem.

    Raises UnknownName for an unknown backend or peer, BadInput for a device that cannot compute here.
    """
    with started(plan) as processes:
        problems = [found for _, found, _ in _results(processes, wordings, progress)]
    return Checked(schema=SCHEMA, problems=tuple(problems), **_machine())


def bench(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Benched:
    """Return how fast each backend is on each problem, and that it is right. Raises as `check`."""
    with started(plan) as processes:
        rate, by = None, ""
        if any(each.device in ON_CPU for each in wordings):
            rate, by = _bandwidth(processes, {"do": "prepare"})
        processes.stop(kept=(VALUES, PEAK))
        problems = [speed.of_problem(*each) for each in _results(processes, wordings, progress)]
    return Benched(
        schema=BENCH_SCHEMA,
        rounds=plan.rounds,
        problems=tuple(problems),
        bandwidth_bytes_per_second=rate,
        bandwidth_by=by,
        **_machine(),
    )


def _bandwidth(processes: Processes, prepare: dict[str, Any]) -> tuple[float | None, str]:
    """Return the bytes a second of a processor's memory, and how they were measured; None, and why not."""
    try:
        described = processes.send(BANDWIDTH, "", prepare)["details"]
        request = {"do": "time", "seconds": _BANDWIDTH_SECONDS, "calls": _BANDWIDTH_CALLS + 1}
        seconds = processes.send(BANDWIDTH, "", request)["seconds"]
    except Lost as lost:
        return None, str(lost) if "device" in prepare else ""
    return int(described["bytes"]) / statistics.median(seconds[1:] or seconds), str(described["by"])


def _results(
    processes: Processes, wordings: Sequence[Wording], progress: Progress | None
) -> Iterator[tuple[Wording, CheckedProblem, Rounds]]:
    ours, others = processes.plan.selected()
    devices = {name: local_device(name) for name in dict.fromkeys(each.device for each in wordings)}
    measured: dict[str, tuple[float | None, str]] = {}
    kept = (VALUES, PEAK, *(each.name for each in others))
    for done, wording in enumerate(wordings):
        if progress is not None:
            progress(done, len(wordings), wording.text)
        found = explained(wording, devices[wording.device])
        speeds = None
        if found.problem.platform != "cpu":
            if processes.plan.rounds and wording.device not in measured:
                measured[wording.device] = _bandwidth(processes, measure_request(found.problem))
                processes.stop(kept)
            rate = measured.get(wording.device, (None, ""))
            speeds = stated_speeds(found.problem, DeviceSpeeds(*rate))
        one = ProblemCheck(processes, wording, found, speeds)
        yield wording, one.run(ours, others), one.rounds
        # Ours afresh for each problem: memory that a backend holds on to would not be measured. Peers
        # take seconds to start; they hold on to none that the allocator cannot give back.
        processes.stop(kept)


def local_device(name: str) -> NamedDevice:
    """Return a device on which this machine can compute. Raises BadInput for any other."""
    hint = "`backends sdpa explain` shows which backends could take it"
    if name.partition(":")[0] == "cuda":
        found = named_devices.device(name)
        broken = [each for each in found.device.reasons if each.code != "no-use-check"]
        if broken:
            message = f"{found.device.name or name} cannot be computed on: {broken[0].message}"
            raise BadInput(message, broken[0].hint)
        return found
    if name not in ON_CPU:
        message = f"{name} cannot be computed on: only this machine's CPU and CUDA devices are"
        raise BadInput(message, hint)
    found = named_devices.device(name)
    if missing := set(found.device.features) - {*map(str, _cpu().get("features", ()))}:
        names = ", ".join(each for each in found.device.features if each in missing)
        raise BadInput(f"{name} cannot be computed on here: no {names}", hint)
    # Whatever it is named after, it computes here: what is missing here counts.
    return msgspec.structs.replace(found, source="")


def _machine() -> dict[str, Any]:
    """Return the fields that every record of a run has."""
    from mlbackends.base.version import __version__

    threads = registry.load(f"{registry.KERNELS}.attention_cpu", "threads")
    return {
        "tool": f"backends {__version__}",
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": str(_cpu().get("model_name", "")),
        "threads": threads.get_num_threads(),
    }


def _cpu() -> dict[str, Any]:
    from mlbackends.survey import survey

    return survey(("cpu",), Host("/"), Presence.FOUND).probes["cpu"].facts
