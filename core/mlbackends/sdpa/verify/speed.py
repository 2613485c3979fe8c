"""How the timed backends of `sdpa bench` compare with each other, with a saved run and with stated speeds."""

import statistics
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, some, why_not
from mlbackends.base.patterns import UNFIT
from mlbackends.host.files import named_bytes
from mlbackends.libraries.products import product_of
from mlbackends.model.benched import SCHEMA, Benched, BenchedProblem, Change, Ratio
from mlbackends.model.checked import SCHEMA as CHECK_SCHEMA
from mlbackends.model.checked import Checked, CheckedProblem, DeviceSpeeds
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.problem_check import Rounds, quarters
from mlbackends.sdpa.verify.problem_size import least_bytes
from mlbackends.switches import store

Saved = TypeVar("Saved", Benched, Checked)
#: The command that saves a record, and its schema.
_SAVED_BY: dict[type, tuple[str, str]] = {
    Benched: ("backends sdpa bench", SCHEMA),
    Checked: ("backends sdpa check", CHECK_SCHEMA),
}
_LARGEST_FILE = 64 << 20


def of_problem(wording: Wording, checked: CheckedProblem, rounds: Rounds) -> BenchedProblem:
    """Return the record of a problem. rounds: by backend, the seconds of the calls of each round."""
    *leading, _, width = wording.shape
    kind = " ".join(replace(wording, shape=(*leading, 0, width), kv_len=None).words)
    timings = {result.backend: result.timing for result in checked.results if result.timing}
    medians = {
        name: {turn: statistics.median(seconds) for turn, seconds in times.items()}
        for name, times in rounds.items()
        if name not in timings or not timings[name].unstable
    }
    ratios = []
    for name, own in medians.items():
        for other, theirs in medians.items():
            found = [
                theirs[turn] / seconds for turn, seconds in own.items() if turn in theirs and seconds > 0
            ]
            if name != other and found:
                ratios.append(Ratio(name, other, statistics.median(found), *quarters(found)))
    return BenchedProblem(
        checked=checked,
        least_bytes=least_bytes(checked.problem),
        length=checked.problem.key_length,
        kind=kind.replace(",0,", ",L,", 1).replace(" 0,", " L,", 1),
        ratios=tuple(ratios),
    )


def read_saved(path: str, record: type[Saved], texts: Collection[str] = ()) -> Saved:
    """Read a record that `sdpa bench` or `sdpa check` saved with --format json.

    texts: problems of which it must contain at least one, () for any. Raises BadInput.
    """
    command, schema = _SAVED_BY[record]
    hint = f"`{command} ... --format json --output FILE` writes one"
    data = named_bytes(path, _LARGEST_FILE, "saved run", hint=hint)
    try:
        saved = msgspec.convert(_fit_to_show(msgspec.json.decode(data)), record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path} was not saved by `{command} --format json`: {why_not(error)}"
        raise BadInput(message) from None
    if saved.schema != schema:
        raise BadInput(f"{path} has the schema {saved.schema!r}; it must be {schema!r}")
    problems: tuple[Any, ...] = saved.problems
    has = [getattr(problem, "checked", problem).text for problem in problems]
    if texts and not set(texts) & set(has):
        message = f"{path} contains none of these problems, so there is nothing to compare"
        raise BadInput(message, f"it has {some(tuple(has))}" if has else "")
    return saved


def _fit_to_show(value: Any) -> Any:
    """Return a JSON value with each text on one line and without control characters."""
    if isinstance(value, str):
        return UNFIT.sub("\ufffd", " ".join(value.split()))
    if isinstance(value, list):
        return list(map(_fit_to_show, value))
    if isinstance(value, dict):
        return {_fit_to_show(name): _fit_to_show(item) for name, item in value.items()}
    return value


def compared(now: Benched, before: Benched) -> Benched:
    """Return a run with the changes since a saved one, by problem and backend."""
    saved = {
        problem.checked.text: {result.backend: result.timing for result in problem.checked.results}
        for problem in before.problems
    }
    problems = []
    for problem in now.problems:
        changes = []
        timings = saved.get(problem.checked.text, {})
        for result in problem.checked.results:
            new, old = result.timing, timings.get(result.backend)
            if old is None or not old.median_seconds or old.unstable or (new and new.unstable):
                continue
            if new is None:
                changes.append(Change(result.backend, 0.0, 0.0))
            elif new.median_seconds:
                shares = new.share_of_peak, old.share_of_peak
                by_share = shares[0] / shares[1] if shares[0] and shares[1] else None
                ratio = old.median_seconds / new.median_seconds
                changes.append(Change(result.backend, ratio, by_share))
        problems.append(replace(problem, changes=tuple(changes)))
    return replace(now, problems=tuple(problems))


# ---- what makers state of their GPUs ------------------------------------------------


def stated_speeds(problem: AttentionProblem, speeds: DeviceSpeeds) -> DeviceSpeeds:
    """Return speeds together with those that the maker of the device states; a part of a GPU has no row."""
    row = product_of(problem.device.name) if problem.device.kind == "cuda" else None
    if row is None:
        name = problem.device.name or "this device"
        return replace(speeds, stated_by=f"no stated speeds are known for {name}")
    is_tf32 = store.read("cuda.matmul.fp32_precision") == "tf32"
    element = "tf32" if problem.dtype == "float32" and is_tf32 else problem.dtype
    tflops = None if element in row.derived else row.peaks.get(element)
    clock = row.clocks.get(element, row.clock_mhz)
    at = f"at {clock:g} MHz" if clock else "without a stated clock"
    return replace(
        speeds,
        stated_gflops=tflops * 1e3 if tflops else None,
        stated_bytes_per_second=row.bandwidth,
        stated_by=f"{row.name}, {element}, {at}: {row.sources[0]}",
    )
