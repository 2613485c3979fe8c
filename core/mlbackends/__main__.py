"""`python -m mlbackends` is the `backends` command."""

from mlbackends_cli import program

if __name__ == "__main__":
    program()
