"""Outcomes for the tests of their formats: one of every ending, hostile ones, and very long ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mlbackends.base import registry
from mlbackends.model.audit import SCHEMA, Check, Outcome, Place, Severity, Status
from mlbackends_cli.terminal import Page

GOLDEN = Path(__file__).parent / "outcomes" / "golden"
HOSTILE = (
    "]]> --> </script></style><script>alert(1)</script><img src=x onerror=alert(1)> ![i](http://x.example)"
    " [l](javascript:alert(1)) <http://x.example> www.x.example @everyone #1 `a` ```b``` | %0A%25 ::error::e"
    " ##[add-mask]m \\ \\# SKIP # TODO ok 1 not ok 2 1..9 Bail out! \"'{}{0}$(id) a,b=c:d --- ... \n"
    "\n::error::fake\n##[error]fake\nok 7 - fake\nnot ok 8\n1..99\n# TYPE x\nx 1\r\x00\x07\x1b[31m\x7f"
    "\x85\u2028\u202e\ud800\ufffe\U0001f600 _u_ *b* ~~s~~\t<b>"
)


def sample() -> Outcome:
    """One check of every ending, and a code that failed twice."""
    two_runtimes = Check(
        code="openmp-two-runtimes",
        title="Two OpenMP runtimes may meet in one process",
        severity=Severity.WARNING,
        status=Status.FAILED,
        message="libgomp of numpy and libiomp5 of torch are loaded by one environment",
        why="Each runtime has threads of its own.",
        hint="Install all packages that compute from one channel.",
        command="pip install --force-reinstall --no-deps 'numpy==2.4.6' | tee log",
        evidence={"openmp.libraries": ["/a/libgomp.so.1", "/b/libiomp5.so"], "openmp.runtimes": 2},
    )
    return Outcome(
        schema=SCHEMA,
        tool="backends 1.2.3",
        kind="doctor",
        title="Known hazards",
        subject="this machine",
        created="2026-01-02T03:04:05Z",
        checks=(
            Check("libc-old", "The C library is older than the wheels need"),
            two_runtimes,
            Check(
                code="driver-branch",
                title="The driver is of the 580 branch",
                status=Status.FAILED,
                message="nvidia.driver is 570.86; >=580.65 is needed",
                hint="Drain the node and install driver 580.",
                evidence={"memory.shm_bytes": 64 << 20, "nvidia.version": "570.86"},
                place=Place("policies/h100.toml", 67),
                documentation="https://a.example/driver",
            ),
            Check(
                code="openmp-two-runtimes",
                title=two_runtimes.title,
                severity=Severity.ERROR,
                status=Status.FAILED,
                message="libomp and libiomp5 are mapped by one process",
                why=two_runtimes.why,
                hint=two_runtimes.hint,
            ),
            Check(
                code="opt-einsum",
                title="opt_einsum is not installed",
                severity=Severity.NOTE,
                status=Status.FAILED,
                message="opt_einsum is not installed: einsum contracts from left to right",
                command="pip install opt_einsum",
            ),
            Check("cudnn", "cuDNN is 9.15", Severity.ERROR, Status.WAIVED, "until 2027-01-31: canary"),
            Check(
                code="ecc-errors",
                title="A GPU has uncorrectable errors",
                status=Status.UNKNOWN,
                message="not checked: the report has no nvidia",
            ),
            Check("wsl-driver", "A Linux driver in WSL", Severity.ERROR, Status.SKIPPED, "no WSL"),
        ),
    )


def with_checks(*checks: Check, **more: Any) -> Outcome:
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": "backends 1.2.3",
        "kind": "doctor",
        "title": "Known hazards",
        "subject": "this machine",
        "created": "2026-01-02T03:04:05Z",
        **more,
    }
    return Outcome(checks=checks, **told)


def hostile() -> Outcome:
    """Every text is the worst that we know, in a check of every ending and severity."""
    checks = tuple(
        Check(
            code=f"{status}-{severity} {HOSTILE}",
            title=HOSTILE,
            severity=severity,
            status=status,
            message=HOSTILE,
            why=HOSTILE,
            hint=HOSTILE,
            command=HOSTILE,
            evidence={HOSTILE: HOSTILE, "list": [HOSTILE, {HOSTILE: 1}], "nan": float("nan")},
            place=Place(HOSTILE, 3),
            documentation=HOSTILE,
        )
        for status in Status
        for severity in Severity
    )
    return with_checks(*checks, tool=HOSTILE, kind=HOSTILE, title=HOSTILE, subject=HOSTILE, created=HOSTILE)


def long() -> Outcome:
    """3,000 failed checks of 100 codes each severity, one of them with a message of a megabyte."""
    severities = list(Severity)
    checks = [
        Check(
            code=f"rule-{number % 300:03}",
            title="a rule",
            severity=severities[number % 3],
            status=Status.FAILED,
            message=f"seen {number}, something else was needed",
            why="It hurts.",
            hint="Mend it.",
        )
        for number in range(3_000)
    ]
    huge = "x" * (1 << 20)
    checks.append(Check(huge, huge, Severity.ERROR, Status.FAILED, huge, huge, huge, huge, {huge: huge}))
    return with_checks(*checks)


_PIECES = ["]]>", "::", "##[", "%", "|", "`", "\\", "\n", "\r", "\0", "# SKIP", "@a", "<", "&", '"']
_TEXTS = st.one_of(
    st.text(st.characters(codec=None), max_size=12),
    st.lists(st.sampled_from([*_PIECES, "a", " ", "\ud800", "\u2028"]), max_size=6).map("".join),
)
_VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(), _TEXTS, st.lists(_TEXTS, max_size=2),
    st.dictionaries(_TEXTS, _TEXTS, max_size=2),
)  # fmt: skip
_CHECKS = st.builds(
    Check,
    code=_TEXTS,
    title=_TEXTS,
    severity=st.sampled_from(Severity),
    status=st.sampled_from(Status),
    message=_TEXTS,
    why=_TEXTS,
    hint=_TEXTS,
    command=_TEXTS,
    evidence=st.dictionaries(_TEXTS, _VALUES, max_size=3),
    place=st.none() | st.builds(Place, file=_TEXTS, line=st.integers(-1, 9)),
    documentation=_TEXTS,
)
#: Any outcome at all.
ANY = st.builds(
    Outcome,
    schema=st.just(SCHEMA),
    tool=_TEXTS,
    kind=_TEXTS,
    title=_TEXTS,
    subject=_TEXTS,
    created=_TEXTS,
    checks=st.lists(_CHECKS, max_size=5).map(tuple),
)


def written(form: str, outcome: Outcome, **page: Any) -> str:
    """Return an outcome in a format, which can be encoded, as every file is."""
    text: str = registry.load("mlbackends_cli.formats", form).outcome(outcome, Page(**page))
    text.encode()
    return text


def failed_codes(outcome: Outcome) -> set[str]:
    """Return the codes that failed, as a format may write them: on one line, cleaned, and cut."""
    from mlbackends_cli.report import checks

    return {checks.line(check.code) for check in outcome.failed()}
