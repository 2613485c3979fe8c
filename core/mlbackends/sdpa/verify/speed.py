"""How the timed backends of `sdpa bench` compare with one another, and with a saved run."""

import statistics
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, some
from mlbackends.base.patterns import UNFIT
from mlbackends.model.benched import SCHEMA, Benched, BenchedProblem, Change, Ratio
from mlbackends.model.checked import SCHEMA as CHECK_SCHEMA
from mlbackends.model.checked import Checked, CheckedProblem
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.verify.problem_check import Rounds, quarters
from mlbackends.sdpa.verify.problem_size import least_bytes

Saved = TypeVar("Saved", Benched, Checked)
#: The command that saves a record, and its schema.
_SAVED_BY: dict[type, tuple[str, str]] = {
    Benched: ("backends sdpa bench", SCHEMA),
    Checked: ("backends sdpa check", CHECK_SCHEMA),
}
_LARGEST_FILE = 64 << 20


def of_problem(wording: Wording, checked: CheckedProblem, rounds: Rounds) -> BenchedProblem:
    """Return the record of a problem. rounds: by backend, the seconds of each round's calls."""
    *leading, _, width = wording.shape
    kind = " ".join(replace(wording, shape=(*leading, 0, width), kv_len=None).words)
    timings = {each.backend: each.timing for each in checked.results if each.timing}
    medians = {
        name: {turn: statistics.median(each) for turn, each in times.items()}
        for name, times in rounds.items()
        if name not in timings or not timings[name].unstable
    }
    ratios = []
    for name, own in medians.items():
        for other, theirs in medians.items():
            found = [
                theirs[turn] / each for turn, each in own.items() if turn in theirs and each > 0
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
    """Read what `sdpa bench` or `sdpa check` saved with --format json, as a record of that type.

    texts: problems of which it must have one, () for any. Raises BadInput.
    """
    command, schema = _SAVED_BY[record]
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise BadInput(f"{path} is larger than any saved run")
        saved = msgspec.convert(_fit_to_show(msgspec.json.decode(data)), record)
    except OSError as error:
        hint = f"`{command} ... --format json --output FILE` writes one"
        raise BadInput(f"{path} cannot be read: {error.strerror}", hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path} is no run that `{command} --format json` saved: {error}"
        raise BadInput(message) from None
    if saved.schema != schema:
        raise BadInput(f"{path} says {saved.schema!r}; it must be {schema!r}")
    problems: tuple[Any, ...] = saved.problems
    has = [getattr(each, "checked", each).text for each in problems]
    if texts and not set(texts) & set(has):
        message = f"{path} has none of these problems: there is nothing to compare"
        raise BadInput(message, f"it has {some(tuple(has))}" if has else "")
    return saved


def _fit_to_show(value: Any) -> Any:
    """Return a value of JSON with each text on one line, and nothing in it that a terminal obeys."""
    if isinstance(value, str):
        return UNFIT.sub("\ufffd", " ".join(value.split()))
    if isinstance(value, list):
        return list(map(_fit_to_show, value))
    if isinstance(value, dict):
        return {_fit_to_show(name): _fit_to_show(each) for name, each in value.items()}
    return value


def compared(now: Benched, before: Benched) -> Benched:
    """Return a run with what has changed since a saved one, problem by problem and by name."""
    saved = {
        each.checked.text: {result.backend: result.timing for result in each.checked.results}
        for each in before.problems
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
