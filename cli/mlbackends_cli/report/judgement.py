"""What `audit` and `doctor` share: options, output of the outcome, and the exit code."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mlbackends.audit.reports import LIVE
from mlbackends.base.errors import MlBackendsError
from mlbackends.fleet.fingerprint import fingerprints
from mlbackends.model.audit import Outcome, Problem, Severity, Status
from mlbackends_cli import exits, formats
from mlbackends_cli.options import (
    COLOR,
    DEPTH,
    OUTPUT,
    PYTHON,
    REDACT,
    TIMEOUT,
    Command,
    Seconds,
    TypedPath,
    completing,
    format_option,
    option,
    together,
)
from mlbackends_cli.output import write
from mlbackends_cli.report.checks import unknown_line
from mlbackends_cli.terminal import Page, page

if TYPE_CHECKING:
    from mlbackends.fleet.expected import Expected

NEVER = "never"
ANY = "any"
PLAIN = "plain"
#: What each kind of exit code has for what could not be determined.
#:
#: Newer slurmd repeats its HealthCheckProgram until it ends with 0, and does not register before.
UNKNOWN_CODES = {PLAIN: exits.UNKNOWN, "nagios": 3, "npd": 2, "slurm": 0}
#: Seconds: slurmd and Nagios kill what they started after 60.
WITHIN = 50.0


_WRITTEN = ("form", "fail_on", "strict", "details", "output", "color")


def fail_on_option(default: str) -> Callable[[Command], Command]:
    """Return the option for the severity from which findings end the command with 1."""
    return option(
        "--fail-on", "fail-on", usual=default, one_of=[*(severity.value for severity in Severity), NEVER]
    )


#: The options of every command that judges: what counts as failed, and what is written where.
OUTCOME = together(
    fail_on_option(Severity.ERROR.value),
    option("--strict", "Exit 3 if something could not be checked."),
    option("--all details", "Also show passed checks, and the evidence."),
    OUTPUT,
    COLOR,
)
#: The file of what is accepted.
EXPECTED = option("--expected FILE", "expected", kind=TypedPath())
#: The policies of a command that checks against them.
POLICIES = option(
    "--policy policies FILE", "Check against this policy (repeatable).", kind=TypedPath(), many=True
)


def _codes() -> tuple[str, ...]:
    from mlbackends.audit.catalogue import codes

    return codes()


_code = completing(_codes)
#: The hazards that a command looks for.
HAZARDS = together(
    option("--only CODE", "Look only for this hazard (repeatable).", many=True, shell_complete=_code),
    option("--ignore CODE", "Ignore this hazard (repeatable).", many=True, shell_complete=_code),
)

_options = together(
    PYTHON,
    DEPTH,
    TIMEOUT,
    option("--within SECONDS", "within", kind=Seconds(min=0.1, max=86400)),
    REDACT,
    format_option("outcome", about="Output format: for people, for programs, or for CI and monitoring."),
    EXPECTED,
    option("--exit-code codes", "exit-code", usual=PLAIN, one_of=[*UNKNOWN_CODES]),
    option("--problem", "problem", one_of=[ANY, *(problem.value for problem in Problem)]),
    OUTCOME,
)


def judging(judge: Command) -> Command:
    """Add the options of every command that judges, write what it returns, and return the exit code.

    judge: returns an Outcome with its report, or the text of a file.
    """

    @wraps(judge)
    def command(
        *, codes: str, problem: str | None, within: float | None, expected: str | None, **options: Any
    ) -> int:
        written = {name: options.pop(name) for name in _WRITTEN}
        try:
            kinds = ("hazard", "rule") if "policies" in options else ("hazard",)
            accepted, node = accepting(expected, options["subject"], *kinds) if expected else (None, "")
            with limited(within or (WITHIN if codes != PLAIN else None)):
                judged = judge(**options)
            if isinstance(judged, str):
                write(judged, written["output"])
                return exits.YES
            outcome, report = judged
            outcome = accepted.outcome(outcome, node) if accepted else outcome
            if formats.is_for_collectors(written["form"]):
                outcome = replace(outcome, fingerprints=fingerprints(report))
            affected = problem or (Problem.NODE if codes in ("npd", "slurm") else ANY)
            return finish(of_problem(outcome, affected), codes=codes, **written)
        except Exception as error:
            if codes != PLAIN:
                error.exit_code = UNKNOWN_CODES[codes]  # type: ignore[attr-defined]
                if written["form"] == "line":
                    with suppress(MlBackendsError, OSError):  # it may be what could not be written
                        write(unknown_line(str(error)), written["output"])
            raise

    return _options(command)


def accepting(expected: str, subject: str, *kinds: str) -> "tuple[Expected, str]":
    """Read a file of --expected; return it, and the name of the node that a subject is. kinds: of `read`."""
    from mlbackends.fleet.expected import read  # ClusterShell
    from mlbackends.fleet.payload import node_name
    from mlbackends.fleet.sources import Source

    return read(expected, *kinds), node_name() if subject == LIVE else Source(subject).node


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Interrupt the block after a number of seconds. Raises MlBackendsError then."""
    if seconds is None:
        yield
        return

    # Not SIGINT if there is another signal: processes that a shell starts with "&" ignore it.
    number = getattr(signal, "SIGALRM", signal.SIGINT)
    before = signal.signal(number, signal.default_int_handler)
    main, end = threading.get_ident(), time.monotonic() + seconds

    def interrupt() -> None:
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, number)  # a call that waits is interrupted as well
        else:
            signal.raise_signal(number)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may be about to interrupt
    except KeyboardInterrupt:
        if time.monotonic() < end:
            raise
        error = MlBackendsError(f"the probes did not finish within {seconds:g} s", "see --within")
        error.exit_code = exits.UNKNOWN
        raise error from None
    finally:
        signal.signal(number, before)


def of_problem(outcome: Outcome, affected: str) -> Outcome:
    """Return an outcome with the checks of one kind of problem; unclassified ones are the user's."""
    if affected == ANY:
        return outcome
    is_of_node = affected == Problem.NODE
    chosen = (check for check in outcome.checks if (check.problem is Problem.NODE) is is_of_node)
    return replace(outcome, checks=tuple(chosen))


def finish(
    outcome: Outcome,
    *,
    form: str,
    fail_on: str,
    strict: bool,
    details: bool,
    output: str,
    color: str,
    codes: str = PLAIN,
) -> int:
    """Write the outcome, and return the exit code that it means."""
    # A program that reads the code need not read the text.
    with suppress(*[] if codes == PLAIN else [BrokenPipeError]):
        counted = {NEVER: "note", "nagios": "warning"}
        least = counted.get(codes) or counted.get(fail_on, fail_on)
        write_outcome(outcome, form, output, page(color, output, details=details, fail_on=least))
    return code(outcome, fail_on=fail_on, strict=strict, codes=codes)


def write_outcome(outcome: Outcome, form: str, output: str, page: Page) -> None:
    """Write the outcome, and let the format publish it elsewhere, as in GitHub's summary."""
    text = formats.text(form, "outcome", outcome, page)
    write(text, output, mode=0o644 if formats.is_for_collectors(form) else None)
    module = formats.load(form)
    if hasattr(module, "publish"):
        module.publish(outcome)


def code(outcome: Outcome, *, fail_on: str, strict: bool, codes: str = PLAIN) -> int:
    """Return the exit code that an outcome means to who reads such codes."""
    is_unknown = bool(outcome.with_status(Status.UNKNOWN))
    if codes == "nagios":
        worst = max((check.severity.level for check in outcome.failed()), default=0)
        return worst or (UNKNOWN_CODES[codes] if is_unknown else exits.YES)
    if fail_on != NEVER and outcome.failed(Severity(fail_on)):
        return exits.NO
    return UNKNOWN_CODES[codes] if is_unknown and (strict or codes != PLAIN) else exits.YES
