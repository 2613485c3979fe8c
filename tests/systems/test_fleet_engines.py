"""The engines of `backends fleet run`, each as it is: two nodes report, and four do not, each in its way.

What runs on a node is a stub that prints the frames of a recorded machine, so that what is tested is the
engine. ClusterShell and Dask are there wherever tests are; .ci/systems has a job that installs the others.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from mlbackends.audit.reports import report_of
from mlbackends.base.errors import BadInput
from mlbackends.fleet.frames import frames
from mlbackends.fleet.membership import membership_of
from mlbackends.model.fleet import Envelope

pytestmark = pytest.mark.slow

MACHINE = Path(__file__).parents[1] / "hosts" / "cluster-modules-node.machine"
WHOLE = ("node1", "node2")
HUNG, CRASHED, GARBAGE, MISSING = "node3", "node4", "node5", "node6"
STUB = """#!/bin/sh
node=${SLURMD_NODENAME:-${NODE_NAME:-${0##*-}}}
case $node in
    node1|node2) cat "FOLDER/$node" ;;
    node3) sleep 600 ;;
    node4) kill -SEGV $$ ;;
    node5) echo 'BK1 node5 not a frame'; head -c 3000 /dev/urandom ;;
esac
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a stub of `backends`, which knows its node by a variable or by the end of its own name."""
    folder = tmp_path_factory.mktemp("nodes")
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    for node in WHOLE:
        lines = frames(Envelope(node=node, report=report))
        (folder / node).write_text("".join(f"{line}\n" for line in lines))
    path = folder / "backends"
    path.write_text(STUB.replace("FOLDER", str(folder)))
    path.chmod(0o755)
    for number in range(1, 6):
        (folder / f"backends-node{number}").symlink_to(path)
    return path


def summary(*options: str, program: Path | str, expect: str = "", **variables: str) -> dict[str, Any]:
    """Return what was found: the status of each node without a report, and the whole ones."""
    command = [
        sys.executable,
        "-m",
        "mlbackends",
        "fleet",
        "run",
        *options,
        "--program",
        str(program),
    ]
    command += ["--timeout", "2", "--format", "json", *(["--expect", expect] if expect else [])]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fleet = json.loads(done.stdout)
    found = {node: silent["status"] for silent in fleet["silent"] for node in silent["nodes"]}
    found["whole"] = sorted(
        node for configuration in fleet["configurations"] for node in configuration["nodes"]
    )
    return found


def needs(*programs: str) -> None:
    """Skip outside the job of .ci/systems, and where a program is not here."""
    if os.environ.get("ENGINES") != "1":
        pytest.skip("ENGINES is not 1: .ci/systems engines")
    for tool in programs:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not here")


def check_that_workers_read_what_one_reader_does(*engine: str, folder: Path) -> None:
    """Have two hundred nodes read by an engine's workers and here, and compare."""
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    files = folder / "reports"
    files.mkdir()
    for at in range(200):
        lines = [*frames(Envelope(node=f"n{at:03}", report=report))] if at != 7 else []
        (files / f"n{at:03}.frame").write_text("\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "mlbackends",
        "fleet",
        "summarize",
        str(files),
        "--format",
        "json",
    ]
    fleets = []
    for more in ((), engine):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        fleets.append(json.loads(done.stdout))
    alone, by_workers = fleets
    assert alone["configurations"][0]["nodes"] and [node["nodes"] for node in alone["silent"]] == [["n007"]]
    assert by_workers == alone


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(*commands: list[str], **variables: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Run programs in groups of their own, and kill these at the end."""
    processes = []
    try:
        environment = {**os.environ, **variables}
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for command in commands:
            process = subprocess.Popen(command, start_new_session=True, env=environment, **nowhere)  # type: ignore[call-overload]
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Any, seconds: float = 90) -> None:
    """Wait until a function returns something that is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come up"
        time.sleep(0.2)


def test_clustershell_with_its_own_worker(program: Path, tmp_path: Path) -> None:
    pytest.importorskip("ClusterShell")
    (tmp_path / "defaults.conf").write_text("[task.default]\ndistant_workername: exec\n")
    found = summary("--hosts", "node[1-6]", program=f"{program}-%h", CLUSTERSHELL_CFGDIR=str(tmp_path))
    assert found == {
        "whole": [*WHOLE], HUNG: "timeout", CRASHED: "error", GARBAGE: "garbled", MISSING: "error",
    }  # fmt: skip


def slurm_conf(folder: Path, ports: list[int]) -> str:
    """Return the configuration of a controller and of nodes that are all this machine."""
    nodes = "\n".join(
        f"NodeName=node{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs=1"
        f" Features={'h100,ib' if number < 3 else 'cpu'}"
        for number, port in enumerate(ports[1:], 1)
    )
    return f"""
ClusterName=test
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SlurmctldTimeout=300
SlurmdTimeout=300
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
{nodes}
PartitionName=all Nodes=node[1-6] Default=YES State=UP
PartitionName=debug Nodes=node1 State=UP Hidden=YES
"""


def test_slurm_with_a_controller_and_daemons(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("srun", "salloc", "scontrol", "slurmctld", "slurmd", "munged")
    if os.geteuid():
        pytest.skip("slurmd starts tasks as root")
    (tmp_path / "munge.key").write_bytes(os.urandom(128))
    (tmp_path / "munge.key").chmod(0o600)
    tmp_path.chmod(0o755)
    conf = tmp_path / "slurm.conf"
    conf.write_text(slurm_conf(tmp_path, [free_port() for _ in range(7)]))
    munge = [
        "munged", "--foreground", "--force", f"--key-file={tmp_path}/munge.key",
        f"--socket={tmp_path}/munge.socket", f"--pid-file={tmp_path}/munge.pid",
        f"--log-file={tmp_path}/munge.log", f"--seed-file={tmp_path}/munge.seed",
    ]  # fmt: skip
    variables = {"SLURM_CONF": str(conf)}

    def idle() -> bool:
        done = subprocess.run(
            ["sinfo", "-h", "-t", "idle", "-o", "%D"], capture_output=True, text=True,
            env={**os.environ, **variables}, check=False,
        )  # fmt: skip
        return done.stdout.strip() == "6"

    with started(munge):
        wait_for((tmp_path / "munge.socket").exists)
        daemons = [["slurmd", "-D", "-N", f"node{number}"] for number in range(1, 7)]
        with started(["slurmctld", "-D"], *daemons, **variables) as processes:
            wait_for(idle)
            monkeypatch.setenv("SLURM_CONF", str(conf))
            nodes = tmp_path / "nodes.txt"
            shown = subprocess.run(["scontrol", "show", "node"], capture_output=True, check=True)
            nodes.write_bytes(shown.stdout)
            for source in ("feature", f"feature={nodes}"):
                assert {*membership_of(source).of("node2")} == {"h100", "ib"}
            assert {*membership_of("partition").of("node1")} == {"all", "debug"}
            stop = processes[6]
            script = tmp_path / "job"
            script.write_text(
                f"#!/bin/sh\nkill -9 {stop.pid}\nexec {sys.executable} -m mlbackends fleet run --slurm"
                f" --program {program} --timeout 2 --format json\n"
            )
            script.chmod(0o755)
            done = subprocess.run(
                ["salloc", "--no-kill", "-N6", str(script)], capture_output=True, text=True,
                timeout=200, env={**os.environ, **variables}, check=False,
            )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fleet = json.loads(done.stdout)
    print(done.stderr, fleet["silent"])
    found = {node: silent["status"] for silent in fleet["silent"] for node in silent["nodes"]}
    whole = sorted(node for configuration in fleet["configurations"] for node in configuration["nodes"])
    assert whole == [*WHOLE]
    assert found == {HUNG: "timeout", CRASHED: "error", GARBAGE: "missing", MISSING: "unreachable"}


def test_openmpi_or_mpich(program: Path, tmp_path: Path) -> None:
    needs("mpirun")
    agent = tmp_path / "agent"  # in the place of ssh: what it is to run there is run here
    agent.write_text('#!/bin/sh\nNODE_NAME=$1\nexport NODE_NAME\nshift\nexec sh -c "$*"\n')
    agent.chmod(0o755)
    variables = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": str(agent), "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_oob_tcp_if_include": "lo", "HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": str(agent),
    }  # fmt: skip
    found = summary("--mpi", "--hosts", "node[1-6]", program=program, **variables)
    assert found["whole"] == [*WHOLE]
    assert {*found} == {"whole", HUNG, CRASHED, GARBAGE, MISSING}


@pytest.mark.nightly
def test_dask_with_four_workers_and_one_that_is_lost(program: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from distributed import Client

    from mlbackends.fleet.engines import dask

    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = [
        sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
        "--port", str(port), "--no-dashboard",
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(started(scheduler))
        with Client(address, timeout=60, set_as_default=False):
            pass
        with pytest.raises(BadInput, match="has no workers"):
            next(dask.each(address, len, [()]))
        for number in range(1, 6):
            worker = [
                sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny",
                "--nthreads", "1", "--no-dashboard", "--host", f"127.0.0.{number}",
                "--local-directory", str(tmp_path / f"node{number}"),
            ]  # fmt: skip
            stack.enter_context(started(worker, NODE_NAME=f"node{number}"))
        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(5, timeout=90)
        found = summary("--dask", address, program=program, expect="node[1-6]")
        check_that_workers_read_what_one_reader_does("--dask", address, folder=tmp_path)
    assert found == {
        "whole": [*WHOLE], HUNG: "timeout", CRASHED: "error", GARBAGE: "garbled", MISSING: "missing",
    }  # fmt: skip


def test_ray_with_five_nodes(program: Path, tmp_path: Path) -> None:
    needs()
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "env_vars": {"NODE_NAME": "node1"}}
    )
    try:
        for number in range(2, 6):
            cluster.add_node(num_cpus=1, env_vars={"NODE_NAME": f"node{number}"})
        found = summary("--ray", cluster.address, program=program, expect="node[1-6]")
        check_that_workers_read_what_one_reader_does("--ray", cluster.address, folder=tmp_path)
    finally:
        cluster.shutdown()
    assert found == {
        "whole": [*WHOLE], HUNG: "timeout", CRASHED: "error", GARBAGE: "garbled", MISSING: "missing",
    }  # fmt: skip


def test_what_is_no_scheduler_of_dask_is_waited_for_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("distributed")
    from mlbackends.fleet.engines import dask

    monkeypatch.setattr(dask, "GRACE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BadInput, match="does not answer like a Dask scheduler"):
            next(dask.each(where, len, [()]))
