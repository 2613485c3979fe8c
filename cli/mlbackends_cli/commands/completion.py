"""Print the completion script of a shell.

It completes commands, options, names of probes and the dotted names of --get. An installed backends
has the scripts under share/, where shells look for them.

Examples:
  eval "$(backends completion bash)"                                    # in ~/.bashrc
  backends completion zsh > ~/.zfunc/_backends                          # with ~/.zfunc in fpath
  backends completion fish > ~/.config/fish/completions/backends.fish
  backends completion powershell | Out-String | Invoke-Expression       # in $PROFILE
"""

import click
from click.shell_completion import get_completion_class

from mlbackends_cli.lazy import documented
from mlbackends_cli.output import write

SHELLS = ("bash", "zsh", "fish")
#: It asks as bash does; click has no script for it. Without an answer PowerShell completes files.
_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName backends -ScriptBlock {
    param($word, $line, $cursor)
    $before = @($line.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursor })
    $env:_BACKENDS_COMPLETE = 'bash_complete'
    $env:COMP_CWORD = $before.Count
    $env:COMP_WORDS = (@($before | ForEach-Object { $_.ToString() }) + $word) -join ' ' -replace '\\\\', '/'
    backends | ForEach-Object {
        $kind, $value = $_ -split ',', 2
        if ($kind -eq 'plain') { [System.Management.Automation.CompletionResult]::new($value) }
    }
    Remove-Item Env:_BACKENDS_COMPLETE, Env:COMP_CWORD, Env:COMP_WORDS
}
"""


def script(shell: str) -> str:
    """Return the completion script of a shell; that of bash, zsh or fish as click's templates have it."""
    if shell == "powershell":
        return _POWERSHELL
    kind = get_completion_class(shell)
    assert kind is not None
    # Only the template is wanted: bash's own `source()` would first ask the bash that is installed.
    completion = kind(click.Command("backends"), {}, "backends", "_BACKENDS_COMPLETE")
    return kind.source_template % completion.source_vars() + "\n"


@documented()
@click.argument("shell", type=click.Choice((*SHELLS, "powershell")))
def command(shell: str) -> None:
    write(script(shell))
