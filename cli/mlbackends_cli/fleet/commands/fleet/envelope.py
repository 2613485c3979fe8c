"""Run a command of backends on this node, and print its record as frames.

COMMAND is one that has --format json, without the word backends: info, which is the default, doctor, audit,
sdpa check. It runs in a process group of its own, which is killed at --timeout; a command that hangs, crashes
or prints something else makes an envelope that says so. The exit code is 0 then, too: one node that fails
must not end the job of the others.

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
@timeout_option(60.0, "How long the command may take before it is killed.", most=86400)
@COMMAND
def command(timeout: float, command_line: tuple[str, ...]) -> None:
    program = (sys.executable, "-m", "mlbackends", *as_json(command_line, root_command()))
    text = "".join(f"{line}\n" for line in frames(record_of(program, timeout)))
    output.write(text, "")
