"""Rebuild the environments of public issues from real wheels, and compare our answers with their causes.

CASE is a thread, such as vllm#44335 or its link, or a file in the form of replay/cases; without one, every
case whose wheels were downloaded before. Wheels and environments are kept in ~/.cache/mlbackends-replay, or
in $MLBACKENDS_REPLAY. Nothing in them is imported or run.

Exit 0 if every answer begins with the thread's cause, 1 if one does not, 3 if none could be rebuilt.

Examples:
  backends replay vllm#44335            one thread: link, question, answer, and what ended it there
  backends replay                       every case that is here already
  backends replay --download            every case, after downloading its wheels (5 GB)
  backends replay --download --update   and write docs/replay.md
"""

import os
import shutil
from typing import Any

import click

from mlbackends_cli import exits
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option
from mlbackends_cli.output import write
from mlbackends_cli.terminal import ProgressLine
from mlbackends_replay import cases, results
from mlbackends_replay.rebuild import NotRebuilt, cache_folder, rebuild, wheel_path
from mlbackends_replay.results import Result


@documented()
@click.argument("names", metavar="[CASE]...", nargs=-1)
@option("--download", "Download the wheels of every case.")
@option("--max-mb MB", "Leave out cases with more megabytes of wheels than this.", kind=int, usual=1 << 20)
@option("--keep", "Keep the environments, to look at them with `backends resolve --root`.")
@option("--update", "Write docs/replay.md and replay/results.json.")
def command(
    names: tuple[str, ...], download: bool, max_mb: int, keep: bool, update: bool, **shown: Any
) -> int:
    del shown
    chosen = [cases.named(name) for name in names] or [
        case for case in cases.every() if case.size_mb <= max_mb
    ]
    may_download = download or bool(names)
    answers: dict[str, Result] = {}
    with ProgressLine() as progress:
        for i, case in enumerate(chosen):
            progress(i, len(chosen), case.thread)
            folder = os.path.join(cache_folder(), "environments", case.name)
            try:
                if not all(wheel_path(case, wheel, may_download=may_download) for wheel in case.wheels):
                    continue
                rebuild(case, folder)
                answers[case.name] = results.answer(case, folder)
            except NotRebuilt as error:
                answers[case.name] = Result(str(error))
            if not (keep or names):
                shutil.rmtree(folder, ignore_errors=True)
    run = [case for case in chosen if case.name in answers]
    if update:
        results.record(answers)
    if names:
        write("\n\n".join(results.shown(case, answers[case.name]) for case in run))
    else:
        write(results.overview([(case, answers[case.name]) for case in run], len(chosen)))
    rebuilt = [answers[case.name] for case in run if answers[case.name].line]
    if not rebuilt:
        return exits.UNKNOWN
    return exits.YES if all(result.agrees for result in rebuilt) else exits.NO
