"""Run a command with MKL's tracing on."""

from mlbackends_cli.trace.capture import capture_command

command = capture_command(
    "mkl",
    ("mkl",),
    """\
  backends trace mkl -- python solve.py
  backends trace mkl -o solve.log --summary full -- ./solver --size 1000
  backends trace mkl --rank-env OMPI_COMM_WORLD_RANK -- mpirun -n 4 ./solver
""",
)
