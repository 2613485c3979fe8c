"""`sdpa bench`: backends and peers timed in turn on a grid of problems, and how they compare."""

import statistics
import time
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from mlbackends.model.benched import SCHEMA, Benched, BenchedProblem, Change, Ratio
from mlbackends.model.checked import CheckedProblem
from mlbackends.model.errors import BadInput, some
from mlbackends.sdpa.explaining import explained
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.bench import BANDWIDTH, PEAK, VALUES, Bench, bench
from mlbackends.sdpa.verify.case import Case, quarters
from mlbackends.sdpa.verify.plan import Plan, wanted
from mlbackends.sdpa.verify.problem_size import least_bytes
from mlbackends.sdpa.verify.running import Progress, place, processor, threads

_SAMPLES = 5
_MOST_SAVED = 64 << 20


def benched(wordings: Sequence[Wording], plan: Plan, progress: Progress | None = None) -> Benched:
    """Return how fast each backend is on each problem, and that it is right.

    Raises as `running.check` does.
    """
    from mlbackends import __version__

    ours, others = wanted(plan)
    places = {name: place(name) for name in dict.fromkeys(each.device for each in wordings)}
    told = []
    with bench(plan) as processes:
        bandwidth, by = _bandwidth(processes)
        for done, wording in enumerate(wordings):
            if progress is not None:
                progress(done, len(wordings), wording.text)
            case = Case(processes, wording, explained(wording, places[wording.device]))
            checked = case.run(ours, others)
            told.append(_problem(wording, checked, case.rounds))
            processes.stop(kept=(VALUES, PEAK, *(each.name for each in others)))
    return Benched(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        processor=processor(),
        threads=threads(),
        rounds=plan.rounds,
        problems=tuple(told),
        bandwidth_bytes_per_second=bandwidth,
        bandwidth_by=by,
    )


def _problem(
    wording: Wording, checked: CheckedProblem, rounds: dict[str, list[list[float]]]
) -> BenchedProblem:
    *leading, _, width = wording.shape
    kind = replace(wording, shape=(*leading, 0, width), kv_len=None).words
    return BenchedProblem(
        checked=checked,
        least_bytes=least_bytes(checked.problem),
        length=checked.problem.key_length,
        kind=" ".join(kind).replace(",0,", ",L,", 1).replace(" 0,", " L,", 1),
        ratios=tuple(_ratios(rounds)),
    )


def _ratios(rounds: dict[str, list[list[float]]]) -> Iterator[Ratio]:
    """Yield how each compares with each other, round by round."""
    medians = {name: [statistics.median(each) for each in taken] for name, taken in rounds.items()}
    for name, own in medians.items():
        for other, theirs in medians.items():
            found = [b / a for a, b in zip(own, theirs, strict=False) if a > 0]
            if name != other and found:
                lower, upper = quarters(found)
                yield Ratio(name, other, statistics.median(found), lower, upper)


def _bandwidth(processes: Bench) -> tuple[float | None, str]:
    """Measure how fast memory is copied; None where that cannot be told."""
    from mlbackends.sdpa.verify.served import Lost

    try:
        told = processes.ask(BANDWIDTH, "", {"do": "prepare"})["told"]
        request = {"do": "time", "seconds": 60.0, "calls": _SAMPLES + 1}
        seconds = processes.ask(BANDWIDTH, "", request)["seconds"][1:]
    except Lost:
        return None, ""
    processes.stop(kept=(VALUES, PEAK))
    return int(told["bytes"]) / statistics.median(seconds), str(told["by"])


def read_saved(path: str) -> Benched:
    """Read what `sdpa bench --format json` wrote. Raises BadInput."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_SAVED + 1)
        if len(data) > _MOST_SAVED:
            raise BadInput(f"{path} is larger than any saved run")
        found = msgspec.json.decode(data, type=Benched)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = f"{path} is no run that `backends sdpa bench --format json` saved: {error}"
        raise BadInput(said) from None
    if found.schema != SCHEMA:
        raise BadInput(f"{path} says {found.schema!r}; it must be {SCHEMA!r}")
    return found


def refuse_incomparable(wordings: Sequence[Wording], before: Benched, path: str) -> None:
    """Raise BadInput where a saved run has none of the problems that are to be timed."""
    saved = [each.checked.text for each in before.problems]
    if not {each.text for each in wordings} & set(saved):
        raise BadInput(
            f"{path} has none of these problems: there is nothing to compare",
            f"it has {some(tuple(saved))}" if saved else "",
        )


def compared(now: Benched, before: Benched) -> Benched:
    """Return a run with what has changed since a saved one, problem by problem and by name."""
    saved = {each.checked.text: each.checked for each in before.problems}
    problems = tuple(
        replace(each, changes=tuple(_changes(each.checked, saved[each.checked.text])))
        if each.checked.text in saved
        else each
        for each in now.problems
    )
    return replace(now, problems=problems)


def _changes(now: CheckedProblem, before: CheckedProblem) -> Iterator[Change]:
    timings = {each.backend: each.timing for each in before.results}
    for result in now.results:
        new, old = result.timing, timings.get(result.backend)
        if old is None or not old.median_seconds:
            continue
        if new is None:
            yield Change(result.backend, 0.0, 0.0)
            continue
        if not new.median_seconds:
            continue
        shares = new.share_of_peak, old.share_of_peak
        by_share = shares[0] / shares[1] if shares[0] and shares[1] else None
        yield Change(result.backend, old.median_seconds / new.median_seconds, by_share)
