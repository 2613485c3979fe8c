"""Look at many machines at once: which differ, in what, which are sick, and which said nothing.

Nothing is started here: Slurm, clush, pdsh, mpirun, Ansible, kubectl or a folder of files bring the
reports, and these commands read what they print. `backends info --format frame` on the nodes makes lines that
survive what cuts and mixes output; reports as JSON are read too, behind the labels of any of these.

Examples:
  srun -N8 --ntasks-per-node=1 backends info --format frame | backends fleet summarize --expect 8
  clush -w @compute backends info --format frame | backends fleet summarize --expect @compute
  backends fleet summarize reports/            a folder with a report of each node
  backends fleet facts nvidia.version reports/
  backends fleet diff before.json after.json   who was left behind by an upgrade
"""

from mlbackends_cli.lazy import FolderGroup

command = FolderGroup(__name__, name="fleet")
