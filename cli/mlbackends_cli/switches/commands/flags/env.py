"""Print the variables that reproduce the current state; nothing if everything is at its default.

Those named TORCH_..., OMP_NUM_THREADS and so on are read by torch and the libraries themselves.
Those named MLBACKENDS_... are read by mlbackends, and `backends run` carries them into torch.

Examples:
  eval "$(backends flags env --set cudnn.benchmark=true)"
  backends flags env --shell powershell | Out-String | Invoke-Expression
  backends flags env --shell cmd > env.cmd
  backends flags env --flags run.toml --format dotenv > run.env
"""

import os
from contextlib import suppress

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.shells import SHELLS, assignment, own_shell
from mlbackends.switches import store
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import OUTPUT, format_option, option
from mlbackends_cli.output import write
from mlbackends_cli.switches.commands.flags import apply, with_values
from mlbackends_cli.terminal import page


@documented()
@format_option(
    also=("shell", "dotenv"),
    default="shell",
    about="shell is for eval, dotenv for docker --env-file.",
)
@option("--shell", one_of=SHELLS)
@with_values
@OUTPUT
def command(
    form: str, shell: str | None, files: tuple[str, ...], settings: tuple[str, ...], output: str
) -> int:
    apply(files, settings)
    variables = store.environment()
    if form == "shell":
        shell = shell or _usual_shell()
        lines = [assignment(name, text, shell) for name, text in variables.items()]
        if shell == "cmd":  # which would print each command that it reads from a file
            lines = [f"@{line}" for line in lines]
        write("\n".join(lines), output)
    elif form == "dotenv":
        for name, text in variables.items():
            if not text.isprintable():
                raise BadInput(
                    f"{name} is {shown(text)}, which a dotenv file cannot express",
                    "--format shell or json can",
                )
        write("\n".join(f"{name}={text}" for name, text in variables.items()), output)
    else:
        write(formats.text(form, "record", variables, page("auto", output)), output)
    return exits.YES


def _usual_shell() -> str:
    if os.name != "nt":
        return "sh"
    import psutil

    names = []
    with suppress(psutil.Error, OSError):  # one of them has ended
        names = [parent.name() for parent in psutil.Process().parents()]
    return own_shell(names, os.environ)
