"""Compare many machines: which differ, how, which are unhealthy, and which did not report.

Nothing is started here: Slurm, clush, pdsh, mpirun, Ansible, kubectl or a folder of files bring the
reports, and these commands read them. `backends info --format frame` on the nodes prints lines that
survive when output is cut or mixed; reports as JSON are read too, with the labels of any of these tools.

Examples:
  srun -N8 --ntasks-per-node=1 backends info --format frame | backends fleet summarize --expect 8
  clush -w @compute backends info --format frame | backends fleet summarize --expect @compute
  backends fleet summarize reports/            a folder with one report per node
  backends fleet facts nvidia.version reports/
  backends fleet diff before.json after.json   which nodes an upgrade did not reach
"""

from mlbackends_cli.lazy import FolderGroup

command = FolderGroup(__name__, name="fleet")
