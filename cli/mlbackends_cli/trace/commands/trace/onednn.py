"""Run a command with oneDNN's tracing on."""

from mlbackends_cli.trace.capture import capture_command

command = capture_command(
    "onednn",
    ("onednn",),
    """\
  backends trace onednn -- python train.py
  backends trace onednn --level dispatch --summary full -- python infer.py
  backends trace onednn --live -o train.log -- torchrun --nproc-per-node 2 train.py
""",
)
