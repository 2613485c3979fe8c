"""Run a command with the tracing of MKL and oneDNN on."""

from mlbackends_cli.trace.capture import capture_command

command = capture_command(
    "all",
    ("mkl", "onednn"),
    """\
  backends trace all -- python train.py
  backends trace all --append -o nightly.log --summary none -- pytest tests
""",
)
