"""`python replay CASE`: the command without installing it."""

import sys

from mlbackends_cli import main

if __name__ == "__main__":
    from mlbackends_replay import command

    main.main.add_command(command.command, "replay")
    sys.argv.insert(1, "replay")
    raise SystemExit(main.command_line())
