"""`sdpa check` and `sdpa bench`: backends compute the problems in turn."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.base.quantities import utc
from mlbackends.base.version import __version__
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
from mlbackends.sdpa.verify.problem_check import LOWERED, ProblemCheck, Rounds, measure_request
from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, VALUES, Plan, Processes, started
from mlbackends.survey import survey

_BANDWIDTH_CALLS, _BANDWIDTH_SECONDS = 5, 60.0
#: The devices that this machine's CPUs compute for.
ON_CPU = ("cpu", *LOWERED)

#: Called with the number of finished problems, the number of all, and the text of the next one.
Progress = Callable[[int, int, str], None]


def check(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Checked:
    """Return the result of every backend for every problem.

    Raises UnknownName for an unknown backend or peer, BadInput for a device that cannot compute here.
    """
    with started(plan) as processes:
        problems = [checked for _, checked, _ in _results(processes, wordings, progress)]
    return Checked(schema=SCHEMA, problems=tuple(problems), **machine())


def bench(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Benched:
    """Return the speed and the errors of every backend for every problem. Raises as `check`."""
    with started(plan) as processes:
        rate, by = None, ""
        if any(wording.device in ON_CPU for wording in wordings):
            rate, by = _bandwidth(processes, {"do": "prepare"})
        processes.stop(kept=(VALUES, PEAK))
        problems = [speed.of_problem(*result) for result in _results(processes, wordings, progress)]
    return Benched(
        schema=BENCH_SCHEMA,
        rounds=plan.rounds,
        problems=tuple(problems),
        bandwidth_bytes_per_second=rate,
        bandwidth_by=by,
        **machine(),
    )


def _bandwidth(processes: Processes, prepare: dict[str, Any]) -> tuple[float | None, str]:
    """Return the bandwidth of a processor's memory in bytes a second, and how it was measured or why not."""
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
    names = dict.fromkeys(wording.device for wording in wordings)
    devices = {name: local_device(name) for name in names}
    measured: dict[str, tuple[float | None, str]] = {}
    kept = (VALUES, PEAK, *(peer.name for peer in others))
    for done, wording in enumerate(wordings):
        if progress is not None:
            progress(done, len(wordings), wording.text)
        explanation = explained(wording, devices[wording.device])
        speeds = None
        if explanation.problem.platform != "cpu":
            if processes.plan.rounds and wording.device not in measured:
                measured[wording.device] = _bandwidth(processes, measure_request(explanation.problem))
                processes.stop(kept)
            rate = measured.get(wording.device, (None, ""))
            speeds = speed.stated_speeds(explanation.problem, DeviceSpeeds(*rate))
        check = ProblemCheck(processes, wording, explanation, speeds)
        yield wording, check.run(ours, others), check.rounds
        # Our processes are restarted for each problem: memory that a backend keeps would not be measured.
        # Peers take seconds to start, and their allocators can release what they keep.
        processes.stop(kept)


def local_device(name: str) -> NamedDevice:
    """Return a device on which this machine can compute. Raises BadInput for any other."""
    hint = "`backends sdpa explain` shows which backends would support it"
    if name.partition(":")[0] == "cuda":
        place = named_devices.device(name)
        broken = [reason for reason in place.device.reasons if reason.code != "no-use-check"]
        if broken:
            message = f"{place.device.name or name} cannot compute: {broken[0].message}"
            raise BadInput(message, broken[0].hint)
        return place
    if name not in ON_CPU:
        message = f"{name} is not a CPU or CUDA device of this machine"
        raise BadInput(message, hint)
    place = named_devices.device(name)
    if missing := set(place.device.features) - {*map(str, _cpu().get("features", ()))}:
        names = ", ".join(feature for feature in place.device.features if feature in missing)
        raise BadInput(f"{name}: this CPU lacks {names}", hint)
    # Without a source it is a device of this machine, where missing packages count.
    return msgspec.structs.replace(place, source="")


def machine() -> dict[str, Any]:
    """Return the fields that the records of all runs have: tool, created, processor and threads."""
    threads = registry.load(f"{registry.KERNELS}.attention_cpu", "threads")
    return {
        "tool": f"backends {__version__}",
        "created": utc(),
        "processor": str(_cpu().get("model_name", "")),
        "threads": threads.get_num_threads(),
    }


def _cpu() -> dict[str, Any]:
    return survey(("cpu",), Host("/"), Presence.FOUND).probes["cpu"].facts
