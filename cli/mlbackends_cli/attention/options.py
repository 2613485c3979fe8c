"""Options that the commands of `backends sdpa` share: the words of a problem, backends, and a time limit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.base.quantities import dotted_numbers
from mlbackends.sdpa import named_devices, problem_text
from mlbackends.sdpa.avoiding import reported_problems
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.problem_text import WORDS, Wording
from mlbackends.sdpa.rules.environment import RECORDED
from mlbackends_cli import exits
from mlbackends_cli.options import Command, completing, option, timeout_option, together, typed, written

_VALUES = {
    "device": named_devices.NAMES,
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "mask": problem_text.MASKS,
    "layout": problem_text.LAYOUTS,
}


def problem_options(command: Command) -> Command:
    """Give a command the words of a problem, and --problems; `wordings_of` reads them."""
    command = option("--problems FILE", "problems", many=True)(command)
    for name, word in reversed(WORDS.items()):
        kind: dict[str, Any] = {"is_flag": True}
        if not word.flag:
            kind = {"metavar": word.metavar, "multiple": True}
        if values := _VALUES.get(name):
            kind["shell_complete"] = completing(partial(iter, values), in_list=True)
        command = click.option(f"--{name}", help=word.help, **kind)(command)
    return command


def wordings_of(options: dict[str, Any]) -> tuple[Wording, ...]:
    """Return the problems of the options, and remove these; the rest is a Plan.

    Raises BadInput, UnknownName or InvalidProblem.
    """
    files, reported = options.pop("problems"), options.pop("known_wrong", False)
    words: dict[str, list[str]] = {}
    for name, word in WORDS.items():
        value = options.pop(name.replace("-", "_"))
        texts = ([""] if value else []) if word.flag else list(value)
        if texts:
            words[name] = texts
    if not files and not reported:
        return problem_text.wordings(words)
    usual = {name: texts for name, texts in words.items() if name != "shape"}

    found = list(problem_text.wordings(words)) if "shape" in words else []
    for path in files:
        found += problem_text.read_file(path, usual)
    if reported:
        for device in usual.get("device", [""]):
            found += reported_problems(device)
    unique = tuple(dict.fromkeys(found))
    if not unique:
        if not reported:
            raise BadInput("no problem is given")
        error = MlBackendsError("no report of wrong attention is about this device: nothing to compute")
        error.exit_code = exits.UNKNOWN
        raise error
    return unique


_VERSIONS = ("cudnn", "cuda", "rocm", "driver")


def versions_of(options: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return torch's releases and the other versions of VERSIONS, and remove these. Raises BadInput."""
    torch = _releases(options.pop("torch") or "")
    return torch, {name: value for name in _VERSIONS if (value := options.pop(name))}


def _releases(text: str) -> tuple[str, ...]:
    """Return the releases of torch that an option names. Raises BadInput."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        first, dots, last = part.partition("..")
        between = [
            name for name in RECORDED if dotted_numbers(first) <= dotted_numbers(name) <= dotted_numbers(last)
        ]
        if len(dotted_numbers(first.partition("+")[0])) < 2 or (dots and not between):
            recorded = f"the rules of torch {RECORDED[0]} to {RECORDED[-1]} are recorded"
            raise BadInput(f"--torch {part[:40]!r} is not a release of torch, or a range of them", recorded)
        found += between if dots else [first]
    if text and not found:
        raise BadInput(f"--torch {text[:40]!r} names no release")
    return tuple(dict.fromkeys(found))


def refuse_beside_saved(options: dict[str, Any]) -> None:
    """Raise BadInput if an option of a new run is combined with --from."""
    for name, typed_option in typed().items():
        if name in options:
            message = f"--from shows a saved run, {typed_option} is for a new one"
            raise BadInput(message, "leave one of them out")


complete_backend = completing(lambda: [backend.name for backend in backends()])


def backend_option(about: str, spec: str = "--backend names NAME") -> Callable[[Command], Command]:
    """Return an option that takes backends, and may be given again."""
    return option(spec, about, many=True, shell_complete=complete_backend)


PYTHON = option("--python pythons [PEER=]EXE", "peers python", many=True)
FORMAT = written(also=("table", "markdown"))


def run_options(least_rounds: int, rounds: int, seconds: float) -> Callable[[Command], Command]:
    """Return the options of a command that computes problems, which are a Plan, and --from."""
    about = "Time limit for one answer of a backend before it is stopped."
    no_timing = "" if least_rounds else "; 0 for no timing"
    kind = click.IntRange(least_rounds, 10_000)
    return together(
        problem_options,
        backend_option("Run only this backend or peer (repeatable)."),
        option("--peers", "Run peers too, each in its own process."),
        PYTHON,
        option("--rounds N", f"Number of timing rounds{no_timing}.", usual=rounds, kind=kind),
        timeout_option(seconds, about, most=86400),
        option("--from saved FILE", "from", usual=""),
    )
