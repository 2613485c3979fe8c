"""The launcher beside torch's: the same plans and environments, and each deviation side by side."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import IS_NEWEST

from mlbackends.base.errors import MlBackendsError
from mlbackends.launch.cores import Topology, topology_of
from mlbackends.launch.launcher import prepare
from mlbackends.launch.options import OPTIONS, Options
from mlbackends.xeon import run_cpu as ours

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.launch.processes import Child

theirs: Any = pytest.importorskip("torch.backends.xeon.run_cpu")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform != "linux", reason="launches are Linux's"),
]

PLAIN = ["--use-default-allocator", "--disable-iomp"]
Plan = list[tuple[str, ...]]


def lscpu(*sizes: int, threads: int = 1) -> str:
    """Return what lscpu says of nodes of these sizes; cores are numbered through."""
    total = sum(sizes)
    owner = [node for node, size in enumerate(sizes) for _ in range(size)]
    return "# CPU,Core,Socket,Node\n" + "\n".join(
        f"{thread * total + core},{core},{owner[core]},{owner[core]}"
        for thread in range(threads)
        for core in range(total)
    )


TWO = lscpu(4, 4, threads=2)


def topology(text: str) -> Topology:
    """Return the cores that such a text describes."""
    rows = [tuple(map(int, line.split(","))) for line in text.splitlines()[1:]]
    cores: dict[int, list[int]] = {}
    for cpu, core, *_ in rows:
        cores.setdefault(core, []).append(cpu)
    nodes = {cpu: node for cpu, _, _, node in rows}
    return topology_of(cores.values(), nodes, sorted(set(nodes.values())), sorted(nodes))


@pytest.fixture
def torch_plans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that tells what torch would start, and with which environment."""

    def planned(
        arguments: list[str],
        text: str,
        environment: dict[str, str] | None = None,
        *,
        numactl: bool = True,
    ) -> tuple[Plan, dict[str, str]]:
        started: list[dict[str, Any]] = []

        class Started:
            def wait(self) -> None:
                return None

        def start(**given: Any) -> Started:
            started.append(given)
            return Started()

        with monkeypatch.context() as patch:
            for name in ("OMP_NUM_THREADS", "LD_PRELOAD", "LOCAL_WORLD_SIZE", "LOCAL_RANK"):
                patch.delenv(name, raising=False)
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            # What torch's launcher sets of itself goes with the patch.
            patch.setattr(theirs.os, "environ", dict(os.environ))
            patch.setattr(theirs, "start_processes", start)
            launcher = theirs._Launcher()
            launcher.cpuinfo = theirs._CPUinfo(text)
            patch.setattr(launcher, "is_numactl_available", lambda: numactl)
            parser = argparse.ArgumentParser()
            theirs.create_args(parser)
            launcher.launch(parser.parse_args([*arguments, "--", "s.py"]))
            made = dict(theirs.os.environ)
        (given,) = started
        made.update(given["envs"].get(0, {}))
        plans = [(given["entrypoint"], *given["args"][at]) for at in sorted(given["args"])]
        # One CPU is a range for torch: 8-8.
        single = re.compile(r"\b(\d+)-\1\b")
        return [tuple(single.sub(r"\1", word) for word in command) for command in plans], made

    return planned


def our_launch(
    arguments: list[str],
    text: str,
    environment: dict[str, str] | None = None,
    *,
    numactl: bool = True,
) -> list[Child]:
    args = ours.create_args().parse_args([*arguments, "--", "s.py"])
    children, _ = prepare(
        Options(**{option.name: getattr(args, option.name) for option in OPTIONS}),
        ("s.py",),
        {"HOME": os.environ.get("HOME", "/"), **(environment or {})},
        topology=topology(text),
        works=lambda command: numactl or command[0] != "numactl",
    )
    return children


def our_plans(
    arguments: list[str], text: str, environment: dict[str, str] | None = None
) -> tuple[Plan, dict[str, str]]:
    made = our_launch(arguments, text, environment)
    return [child.command for child in made], made[0].environment


#: 2.14 divides in another way; it is followed.
newest = pytest.mark.skipif(not IS_NEWEST, reason="an older torch divides cores in another way")
older = pytest.mark.skipif(IS_NEWEST, reason="what torch does up to 2.13")

AGREED = [
    [],
    ["--ninstances", "3"],
    ["--ncores-per-instance", "3"],
    ["--ninstances", "2", "--skip-cross-node-cores"],
    ["--ncores-per-instance", "3", "--ninstances", "2", "--skip-cross-node-cores"],
    ["--ncores_per_instance", "2", "--skip_cross_node_cores"],
    ["--ncores-per-instance", "3", "--skip-cross-node-cores"],
    ["--ncores-per-instance", "3", "--ninstances", "2"],
    ["--multi-instance"],
    ["--throughput-mode"],
    ["--throughput-mode", "--ninstances", "5"],
    ["--latency-mode"],
    ["--node-id", "1"],
    ["--node-id", "1", "--ninstances", "2"],
    ["--use-logical-core"],
    ["--ninstances", "4", "--rank", "2"],
    ["--throughput-mode", "--rank", "1"],
    ["--core-list", "3,2,1,0", "--ncores-per-instance", "2", "--ninstances", "2"],
    ["--core-list", "0,1,2,3", "--ncores-per-instance", "1", "--ninstances", "2"],
    ["--core-list", "5,6", "--ncores-per-instance", "1", "--ninstances", "2"],
    ["--disable-taskset"],
    ["--disable-numactl", "--disable-taskset", "--ninstances", "2"],
]


@newest
@pytest.mark.parametrize("arguments", AGREED, ids=" ".join)
@pytest.mark.parametrize("sizes", [(4, 4), (8, 8), (6, 4), (4, 4, 4, 4)], ids=str)
def test_plans_agree(arguments: list[str], sizes: tuple[int, ...], torch_plans: Any) -> None:
    text = lscpu(*sizes, threads=2)
    expected, environment = torch_plans([*PLAIN, *arguments], text)
    plans, made = our_plans([*PLAIN, *arguments], text)
    assert plans == expected
    if "--rank" not in arguments:  # torch takes the size of the first instance for another's
        assert made["OMP_NUM_THREADS"] == environment["OMP_NUM_THREADS"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--core-list", "a", "--ncores-per-instance", "1"],
        ["--core-list", "99", "--ncores-per-instance", "1", "--ninstances", "1"],
        ["--node-id", "2"],
        ["--node-id", "-2"],
        ["--ninstances", "9"],
        pytest.param(["--ninstances", "3", "--ncores-per-instance", "3"], marks=older),
        pytest.param(["--ninstances", "4", "--rank", "4"], marks=older),
        ["--enable-tcmalloc", "--enable-jemalloc"],
    ],
    ids=" ".join,
)
def test_misuse_raises_the_same_type(arguments: list[str], torch_plans: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        torch_plans([*PLAIN, *arguments], TWO)
    with pytest.raises(MlBackendsError) as raised:
        our_plans([*PLAIN, *arguments], TWO)
    assert isinstance(raised.value, expected.type)


VARIABLES = ("OMP_NUM_THREADS", "LD_PRELOAD", "KMP_AFFINITY", "KMP_BLOCKTIME", "MALLOC_CONF")


@pytest.mark.parametrize("installed", [(), ("jemalloc",), ("tcmalloc", "jemalloc", "iomp5")])
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--enable-tcmalloc"],
        ["--enable-jemalloc"],
        ["--use-default-allocator"],
        ["--disable-iomp"],
        ["--use-logical-core"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("found", [{}, {"KMP_BLOCKTIME": "7", "OMP_NUM_THREADS": "5"}], ids=str)
def test_environments_agree(
    arguments: list[str],
    installed: tuple[str, ...],
    found: dict[str, str],
    tmp_path: Path,
    torch_plans: Any,
) -> None:
    (tmp_path / "lib").mkdir()
    for name in installed:
        (tmp_path / "lib" / f"lib{name}.so").touch()
    # Asked for by name, what is installed on this machine cannot come between.
    if not installed and not any("-enable-" in word for word in arguments):
        arguments = [*arguments, *PLAIN]
    if "iomp5" not in installed:
        arguments = [*arguments, "--disable-iomp"]
    environment = {"CONDA_PREFIX": str(tmp_path), "VIRTUAL_ENV": "/none", **found}
    _, expected = torch_plans(arguments, TWO, environment)
    _, made = our_plans(arguments, TWO, environment)
    if not installed and any("-enable-" in word for word in arguments):
        made.pop("LD_PRELOAD", None)  # we look at Debian's folders too
        made.pop("MALLOC_CONF", None)
        expected.pop("LD_PRELOAD", None)
        expected.pop("MALLOC_CONF", None)
    assert {name: made.get(name) for name in VARIABLES} == {name: expected.get(name) for name in VARIABLES}


def test_every_option_of_torch_is_here_with_its_default() -> None:
    parser = argparse.ArgumentParser()
    theirs.create_args(parser)
    mine = ours.create_args()
    flags = [{flag for action in side._actions for flag in action.option_strings} for side in (parser, mine)]
    assert flags[1] - flags[0] == {"--cores"}
    assert flags[0] <= flags[1]
    defaults = vars(parser.parse_args(["s.py", "a"]))
    assert vars(mine.parse_args(["s.py", "a"])) == defaults


# ---- where we deviate: torch's behaviour first, ours after it ----------------------------------


def test_instances_of_hyper_threads_share_cores_in_torch_and_none_here(torch_plans: Any) -> None:
    arguments = [*PLAIN, "--use-logical-core", "--ninstances", "2", "--node-id", "0"]
    assert [plan[2] for plan in torch_plans(arguments, TWO)[0]] == ["0-3", "8-11"]
    assert [plan[2] for plan in our_plans(arguments, TWO)[0]] == ["0-1,8-9", "2-3,10-11"]


@older
def test_throughput_on_uneven_nodes_spans_them_in_torch_and_not_here(torch_plans: Any) -> None:
    arguments = [*PLAIN, "--throughput-mode"]
    assert [plan[4] for plan in torch_plans(arguments, lscpu(6, 4))[0]] == ["0", "0,1"]
    assert [plan[4] for plan in our_plans(arguments, lscpu(6, 4))[0]] == ["0", "1"]


def test_too_few_cores_are_taken_as_they_are_by_torch_and_refused_here(torch_plans: Any) -> None:
    arguments = [*PLAIN, "--ncores-per-instance", "9"]
    assert len(torch_plans(arguments, TWO)[0]) == (1 if IS_NEWEST else 0)
    with pytest.raises(RuntimeError, match="there are"):
        our_plans(arguments, TWO)


@pytest.mark.parametrize("name", ["--ninstances", "--ncores-per-instance"])
def test_a_count_of_0_divides_by_zero_in_torch_and_is_refused_here(name: str, torch_plans: Any) -> None:
    with pytest.raises((ZeroDivisionError, RuntimeError)):
        torch_plans([*PLAIN, name, "0"], TWO)
    with pytest.raises(ValueError, match=f"{name} is 0"):
        our_plans([*PLAIN, name, "0"], TWO)


@pytest.mark.parametrize(
    ("arguments", "started", "error"),
    [
        (["0,0", "--ninstances", "2"], 2, ValueError),
        pytest.param(["0,1", "--ninstances", "4"], 2, RuntimeError, marks=older),
    ],
    ids=["twice", "too few"],
)
def test_a_core_list_is_taken_as_it_comes_by_torch_and_checked_here(
    arguments: list[str], started: int, error: type[Exception], torch_plans: Any
) -> None:
    listed = [*PLAIN, "--ncores-per-instance", "1", "--core-list", *arguments]
    assert len(torch_plans(listed, TWO)[0]) == started
    with pytest.raises(error):
        our_plans(listed, TWO)


@newest
def test_a_core_list_without_a_count_starts_nothing_in_torch_and_what_it_holds_here(
    torch_plans: Any,
) -> None:
    arguments = [*PLAIN, "--core-list", "0,1,2,3", "--ncores-per-instance", "2"]
    assert torch_plans(arguments, TWO)[0] == []
    assert [plan[2] for plan in our_plans(arguments, TWO)[0]] == ["0-1", "2-3"]


@older
def test_options_beside_a_core_list_are_dropped_by_torch_and_count_here(torch_plans: Any) -> None:
    listed = [*PLAIN, "--core-list", "0,1,2,3", "--ncores-per-instance", "1"]
    assert len(torch_plans([*listed, "--ninstances", "1"], TWO)[0]) == 4
    assert len(our_plans([*listed, "--ninstances", "1"], TWO)[0]) == 1

    assert len(torch_plans([*listed, "--throughput-mode"], TWO)[0]) == 4
    assert len(our_plans([*listed, "--throughput-mode"], TWO)[0]) == 1


def test_modes_drop_the_choice_of_cores_in_torch_and_divide_it_here(torch_plans: Any) -> None:
    arguments = [*PLAIN, "--throughput-mode", "--node-id", "1"]
    assert [plan[2] for plan in torch_plans(arguments, TWO)[0]] == ["0-3", "4-7"]
    assert [plan[2] for plan in our_plans(arguments, TWO)[0]] == ["4-7"]


def test_a_core_list_needs_a_size_in_torch_and_none_here(torch_plans: Any) -> None:
    arguments = [*PLAIN, "--core-list", "1,2"]
    with pytest.raises(RuntimeError):
        torch_plans(arguments, TWO)
    assert [plan[2] for plan in our_plans(arguments, TWO)[0]] == ["1-2"]


def test_below_torchrun_cores_are_split_by_torch_and_must_be_named_here(torch_plans: Any) -> None:
    ranks = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    assert [plan[2] for plan in torch_plans(PLAIN, TWO, ranks)[0]] == ["4-7"]
    with pytest.raises(RuntimeError, match="torchrun starts 2 launchers"):
        our_plans(PLAIN, TWO, ranks)
    assert [plan[2] for plan in our_plans([*PLAIN, "--cores", "4-7"], TWO, ranks)[0]] == ["4-7"]


def test_without_numactl_and_taskset_torch_gives_up_and_our_launcher_binds(
    torch_plans: Any,
) -> None:
    arguments = [*PLAIN, "--disable-taskset", "--ninstances", "2"]
    with pytest.raises(SystemExit) as left:
        torch_plans(arguments, TWO, numactl=False)
    assert left.value.code == -1

    made = our_launch(arguments, TWO, numactl=False)
    assert [child.cpus for child in made] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_threads_of_iomp_wander_where_a_core_is_shared_here_and_by_the_option_in_torch(
    tmp_path: Path, torch_plans: Any
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    found = {"CONDA_PREFIX": str(tmp_path), "VIRTUAL_ENV": "/none"}
    one_thread = ["--use-default-allocator", "--use-logical-core"]
    alone = lscpu(4)
    assert "KMP_AFFINITY" not in torch_plans(one_thread, alone, found)[1]
    assert "KMP_AFFINITY" in our_plans(one_thread, alone, found)[1]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.skipif(shutil.which("lscpu") is None, reason="torch's launcher needs lscpu")
def test_cpus_of_others_are_used_by_torch_and_not_by_us() -> None:
    program = (
        "import os\nfirst = min(os.sched_getaffinity(0))\nos.sched_setaffinity(0, {first})\n"
        "from torch.backends.xeon.run_cpu import _CPUinfo\n"
        "from mlbackends.launch.cores import read_topology\n"
        "from mlbackends.host.host import Host\n"
        "theirs = _CPUinfo().get_all_logical_cores()\n"
        "print(len(theirs) > 1, [core.cpus for core in read_topology(Host()).cores] == [(first,)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"]


def ran(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"{package}.xeon.run_cpu", *PLAIN]
    unbound = ["--disable-numactl", "--disable-taskset"]
    return subprocess.run([*command, *unbound, *arguments], capture_output=True, text=True, check=False)


def test_a_library_that_the_loader_finds_is_dropped_by_torch_and_kept_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    program = ("--no-python", "sh", "-c", "echo [$LD_PRELOAD]")
    assert "[]" in ran("torch.backends", *program).stdout
    assert "[libm.so.6]" in ran("mlbackends", *program).stdout


def test_arguments_of_the_program_may_end_torch_and_pass_here(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import sys; print(sys.argv[1:])")
    assert ran("torch.backends", str(script), "a", "--c").returncode == 2
    assert ran("mlbackends", str(script), "a", "--c").stdout == "['a', '--c']\n"


def test_a_module_is_refused_by_torch_and_runs_here() -> None:
    refused = ran("torch.backends", "-m", "this")
    assert refused.returncode == 1
    assert "--no-python" in refused.stderr
    done = ran("mlbackends", "-m", "this")
    assert done.returncode == 0
    assert "Zen" in done.stdout


@newest
def test_several_sizes_are_accepted_by_torch_and_refused_here(torch_plans: Any) -> None:
    sizes = ["--ncores-per-instance", "1", "1"]
    assert len(torch_plans([*PLAIN, *sizes], TWO)[0]) == 2
    assert ran("mlbackends", *sizes, "s.py").returncode == 2


def test_logs_are_printed_with_a_tag_by_torch_and_only_written_here(tmp_path: Path) -> None:
    program = ("--log-path", str(tmp_path), "--no-python", "echo", "text")
    assert ran("torch.backends", *program).stdout == "[run0]:text\n"
    assert ran("mlbackends", *program).stdout == ""
    logs = list(tmp_path.glob("**/stdout.log"))
    assert [log.read_text() for log in logs] == ["text\n"] * 2
