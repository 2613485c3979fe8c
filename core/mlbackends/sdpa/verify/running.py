"""`sdpa check`: every backend that can compute a problem, held to float64 and timed; see `case`."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from mlbackends.model.checked import SCHEMA, Checked
from mlbackends.model.errors import BadInput
from mlbackends.sdpa.explaining import explained
from mlbackends.sdpa.named_devices import NamedDevice, device
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.bench import PEAK, VALUES, bench
from mlbackends.sdpa.verify.case import LOWERED, Case
from mlbackends.sdpa.verify.plan import Plan, wanted

Progress = Callable[[int, int, str], None]


def check(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Checked:
    """Return what came of every backend on every problem.

    Raises UnknownName for what is no backend or peer, BadInput for a device that cannot compute here.
    """
    from mlbackends import __version__

    ours, others = wanted(plan)
    places = {name: place(name) for name in dict.fromkeys(each.device for each in wordings)}
    told = []
    with bench(plan) as processes:
        for done, wording in enumerate(wordings):
            if progress is not None:
                progress(done, len(wordings), wording.text)
            case = Case(processes, wording, explained(wording, places[wording.device]))
            told.append(case.run(ours, others))
            # Ours afresh for each problem: what memory a backend holds on to would be missed. Peers
            # take seconds to start; they hold on to none that the allocator cannot give back.
            processes.stop(kept=(VALUES, PEAK, *(each.name for each in others)))
    return Checked(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        processor=processor(),
        threads=threads(),
        problems=tuple(told),
    )


def place(name: str) -> NamedDevice:
    """Return a device on which this machine can compute. Raises BadInput for any other."""
    hint = "`backends sdpa explain` tells who could take it"
    if name in LOWERED:
        found = device(name)
        missing = [each for each in found.device.features if each not in _features()]
        if missing:
            raise BadInput(f"{name} cannot be computed on here: no {', '.join(missing)}", hint)
        return found
    if name != "cpu":
        raise BadInput(f"{name} cannot be computed on: only the CPU of this machine is", hint)
    return device(name)


def _features() -> tuple[str, ...]:
    probe = _cpu()
    return tuple(map(str, probe.get("features", ())))


def processor() -> str:
    """Return this machine's processor by its own name, "" where it tells none."""
    return str(_cpu().get("model_name", ""))


def _cpu() -> dict[str, Any]:
    from mlbackends.host.host import Host
    from mlbackends.model.records import Presence
    from mlbackends.survey import survey

    return survey(("cpu",), Host("/"), Presence.FOUND).probes["cpu"].facts


def threads() -> int:
    """Return how many threads attention on the CPU uses here, and so what is measured beside it."""
    from mlbackends_kernels.attention_cpu.threads import get_num_threads

    return get_num_threads()
