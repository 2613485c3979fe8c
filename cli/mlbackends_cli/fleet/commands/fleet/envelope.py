"""Run a command of backends on this node, and print its record as frames.

COMMAND is one that has --format json, without the word backends: info (the default), doctor, audit,
sdpa check. It runs in a separate process group, which is killed at --timeout. If the command hangs, crashes
or prints something else, the envelope reports that. The exit code is 0 even then, so that one failing node
does not end the job of the others.

Examples:
  backends fleet envelope
  srun -N8 --ntasks-per-node=1 backends fleet envelope -- doctor | backends fleet summarize --expect 8
"""

import sys

from mlbackends.fleet.engines import record_of
from mlbackends.fleet.frames import frames
from mlbackends_cli import output
from mlbackends_cli.fleet.remote import COMMAND, as_json, root_command
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import timeout_option


@documented(context_settings={"allow_interspersed_args": False})
@timeout_option(60.0, "Time limit of the command before it is killed.", most=86400)
@COMMAND
def command(timeout: float, command_line: tuple[str, ...]) -> None:
    program = (sys.executable, "-m", "mlbackends", *as_json(command_line, root_command()))
    text = "".join(f"{line}\n" for line in frames(record_of(program, timeout)))
    output.write(text, "")
