"""`python -m mlbackends` is the `backends` command."""

from mlbackends_cli import run

if __name__ == "__main__":
    run()
