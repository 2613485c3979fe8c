"""What docs/clusters.md tells to install, tried with the programs that read it, where they are here.

Debian has slurmctld, slurmd, munge, nagios4-core, icinga2-bin, prometheus and prometheus-node-exporter; NHC
is found as `nhc` on PATH; the Python packages are the dependency group `clusters`.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tests" / "hosts"
SICK = HOSTS / "gpu-server-degraded.machine"
WELL = HOSTS / "cloud-vm-recorded.machine"
PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMAND = "/usr/local/bin/backends"
REASON = r"\[node_problem\] nvidia-module-does-not-fit: .{20,}"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a shell")


def block(language: str, word: str) -> str:
    """Return the page's one block in a language that has a word."""
    (found,) = [str(text) for kind, text in BLOCKS if kind == language and word in text]
    return found


def program(*names: str) -> str:
    """Return the first program's path; skip the test where one of them is not here."""
    folders = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    for name in names:
        if shutil.which(name, path=folders) is None:
            pytest.skip(f"{name} is not here")
    return shutil.which(names[0], path=folders) or ""


def backends(folder: Path, machine: Path) -> str:
    """Write a command that is `backends` on a machine in the place of this one; return its path."""
    script = folder / "backends"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlbackends "$@" "{machine}"\n')
    script.chmod(0o755)
    return str(script)


def written(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what a condition comes to as soon as it holds, and at the end of a time."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.25)
    return found


def run(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120, **more)


# ---- Slurm ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "drained"),
    [(SICK, True), (WELL, False), (None, False)],
    ids=["sick", "well", "gone"],
)
def test_the_health_check_drains_what_is_sick_and_always_ends_with_0(
    tmp_path: Path, machine: Path | None, drained: bool
) -> None:
    command = backends(tmp_path, machine) if machine else "/nowhere/backends"
    script = block("sh", "health.sh").replace(COMMAND, command)
    calls = tmp_path / "calls"
    written(tmp_path / "scontrol", f'#!/bin/sh\nprintf "%s\\n" "$@" > {calls}\n', 0o755)
    path = written(tmp_path / "health.sh", script, 0o755)

    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "n1"}
    done = run(path, env=environment)

    assert done.returncode == 0
    if drained:
        words = calls.read_text().splitlines()
        assert words[:3] == ["update", "nodename=n1", "state=drain"]
        assert re.fullmatch(f"reason={REASON}", words[3])
    assert calls.exists() == drained


#: Names of nodes that Slurm has in its configuration: with one number, with two, and with one before the end.
ABSENT = [*(f"node{at:03}" for at in range(1, 21)), "r1n01", "r1n02", "r2n01", "r2n02", "u1x", "u2x"]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start a controller and one node that has the page's health check and prolog, on a sick machine."""
    program("munged", "slurmctld", "slurmd", "sinfo")
    if os.geteuid() != 0:
        pytest.skip("slurmd must be started by root")
    name = run("hostname", "-s").stdout.strip()
    config = tmp_path / "slurm.conf"
    script = block("sh", "health.sh").replace(COMMAND, backends(tmp_path, SICK))
    script = script.replace("#!/bin/sh\n", f"#!/bin/sh\nexport SLURM_CONF={config}\n")
    written(tmp_path / "health.sh", script, 0o755)
    policy = written(tmp_path / "node.toml", "schema = 1\nhazards = true\n")
    script = block("sh", "prolog.d").replace("/etc/backends/node.toml", str(policy))
    written(tmp_path / "prolog.sh", script.replace(COMMAND, f"{tmp_path}/backends"), 0o755)
    features = run(sys.executable, "-m", "mlbackends", "info", "--root", WELL, "--format", "slurm")
    key = written(tmp_path / "key", "k" * 1024, 0o600)
    for folder in ("state", "spool", "munge"):
        (tmp_path / folder).mkdir(mode=0o755)
    ports = free_ports(2)
    health = block("conf", "HealthCheckProgram").replace("/etc/slurm", str(tmp_path))
    config.write_text(
        f"{health.replace('=300', '=5')}\nClusterName=t\nSlurmctldHost={name}(127.0.0.1)\nSlurmUser=root\n"
        f"SlurmctldPort={ports[0]}\nSlurmdPort={ports[1]}\nAuthType=auth/munge\nCredType=cred/munge\n"
        f"AuthInfo=socket={tmp_path}/munge/s\nStateSaveLocation={tmp_path}/state\n"
        f"SlurmdSpoolDir={tmp_path}/spool\nSlurmctldPidFile={tmp_path}/c.pid\nSlurmdPidFile={tmp_path}/d.pid\n"
        f"SlurmctldLogFile={tmp_path}/c.log\nSlurmdLogFile={tmp_path}/d.log\nReturnToService=2\n"
        f"Prolog={tmp_path}/prolog.sh\nPrologFlags=Alloc\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSlurmdParameters=config_overrides\n"
        "CommunicationParameters=NoInAddrAny\n"
        f"NodeName={name} NodeAddr=127.0.0.1 CPUs=1 Feature={features.stdout.strip()}\n"
        f"PartitionName=p Nodes={name} Default=YES State=UP\n"
        # Nodes of which nobody answers, for commands about them.
        f"NodeName={','.join(ABSENT)} NodeAddr=127.0.0.2 Port={ports[1]} CPUs=1\n"
        f"PartitionName=absent Nodes={','.join(ABSENT)} State=UP\n"
    )
    environment = {**os.environ, "SLURM_CONF": str(config), "NODE": name}
    files = {"socket": "munge/s", "pid-file": "m.pid", "log-file": "m.log", "seed-file": "seed"}
    munge = [f"--{option}={tmp_path}/{name}" for option, name in files.items()]
    started = [
        subprocess.Popen([program(name), *arguments], env=environment, stderr=subprocess.DEVNULL)
        for name, *arguments in (
            ("munged", "--force", "--foreground", f"--key-file={key}", *munge),
            ("slurmctld", "-D", "-f", str(config)),
            ("slurmd", "-D", "-f", str(config)),
        )
    ]
    yield environment
    for process in reversed(started):
        process.terminate()
        process.wait(30)


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def test_slurm_drains_a_sick_node_and_chooses_a_well_one_by_its_features(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    def node(form: str) -> str:
        return run("sinfo", "-hN", "-p", "p", "-o", form, env=slurm).stdout.strip()

    def job(feature: str) -> subprocess.CompletedProcess[str]:
        return run("srun", "-N1", "--immediate=20", f"--constraint={feature}", "echo", "ran", env=slurm)

    until(lambda: node("%t") == "drain")
    assert re.fullmatch(REASON, node("%E"))

    backends(tmp_path, WELL)
    features = node("%f").split(",")
    assert features[0].startswith("avx") and features[-1].startswith("fp_1_")

    def resumed() -> str:  # a check that runs now may be of the sick one still
        run("scontrol", "update", f"nodename={slurm['NODE']}", "state=resume", env=slurm)
        return job(f"[{features[-1]}]").stdout

    assert until(resumed) == "ran\n"
    assert "Invalid feature" in job("fp_1_0").stderr

    backends(tmp_path, SICK)  # its prolog may come before its health check
    assert job(features[0]).stdout == ""
    assert until(lambda: node("%t").startswith("drain"))


def test_slurm_runs_the_drains_of_a_fleet(slurm: dict[str, str], tmp_path: Path) -> None:
    def states() -> dict[str, str]:
        lines = run("sinfo", "-hN", "-p", "absent", "-o", "%N|%T|%E", env=slurm).stdout.splitlines()
        return {node: f"{state}|{reason}" for node, state, reason in (line.split("|", 2) for line in lines)}

    assert until(lambda: len(states()) == len(ABSENT))
    report = run(sys.executable, "-m", "mlbackends", "info", "--root", SICK, "--format", "json").stdout
    sick = ["node003", "node017", "node018", "r1n01", "r2n02", "u1x", "u2x"]
    for node in (*sick, "ALL"):
        written(tmp_path / "reports" / f"{node}.json", report)

    arguments = ("fleet", "doctor", tmp_path / "reports", "--format", "slurm")
    script = run(sys.executable, "-m", "mlbackends", *arguments).stdout
    done = run("sh", "-ec", script, env=slurm)

    assert (done.returncode, done.stderr) == (0, "")
    drained = {node: state.partition("|")[2] for node, state in states().items() if "drain" in state}
    assert sorted(drained) == sorted(sick)
    assert all(re.fullmatch(REASON, reason) for reason in drained.values())


# ---- NHC, Nagios, Icinga -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "code"),
    [(SICK, 1), (WELL, 0), (Path("/nowhere"), 0)],
    ids=["sick", "well", "unknown"],
)
def test_nhc_fails_where_the_node_is_sick(tmp_path: Path, machine: Path, code: int) -> None:
    nhc = program("nhc")
    text = block("conf", "nhc.conf").replace(COMMAND, backends(tmp_path, machine))
    config = written(tmp_path / "nhc.conf", text)

    settings = ("MARK_OFFLINE=0", "LOGFILE=-", "DETACHED_MODE=0")
    done = run(nhc, "-c", config, *settings)

    assert done.returncode == code
    if code:
        assert re.search(f"Health check failed:.*{REASON}", done.stdout + done.stderr)


def test_nagios_alerts_with_the_line(tmp_path: Path) -> None:
    nagios = program("nagios4")
    line = block("conf", "check_backends").partition("=")[2].strip()
    days = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
    contact = "\n".join(
        f" {kind}_notifications_enabled 0\n {kind}_notification_period always\n"
        f" {kind}_notification_options n\n {kind}_notification_commands true"
        for kind in ("host", "service")
    )
    objects = (
        f"define command {{\n command_name b\n command_line {line}\n}}\n"
        "define command {\n command_name true\n command_line /bin/true\n}\n"
        "define timeperiod {\n timeperiod_name always\n alias always\n"
        + "".join(f" {day} 00:00-24:00\n" for day in days)
        + f"}}\ndefine contact {{\n contact_name c\n{contact}\n}}\n"
        "define host {\n host_name node\n address 127.0.0.1\n check_command true\n"
        " max_check_attempts 1\n contacts c\n}\n"
        "define service {\n host_name node\n service_description s\n check_command b\n"
        " max_check_attempts 1\n check_interval 60\n contacts c\n check_period always\n}\n"
    )
    written(tmp_path / "o.cfg", objects.replace(COMMAND, backends(tmp_path, SICK)))
    (tmp_path / "results").mkdir()
    files = {
        "log_file": "log", "cfg_file": "o.cfg", "object_cache_file": "oc", "status_file": "st",
        "precached_object_file": "p", "command_file": "cmd", "lock_file": "lock", "temp_file": "t",
        "temp_path": "", "check_result_path": "results", "state_retention_file": "r", "query_socket": "q",
    }  # fmt: skip
    user = run("id", "-un").stdout.strip()
    text = "".join(f"{key}={tmp_path}/{name}\n" for key, name in files.items())
    text += f"nagios_user={user}\nnagios_group={run('id', '-gn').stdout.strip()}\n"
    text += "check_external_commands=0\ninterval_length=1\nservice_inter_check_delay_method=n\n"
    config = written(tmp_path / "nagios.cfg", text)
    log = tmp_path / "log"

    with subprocess.Popen([nagios, config], stdout=subprocess.DEVNULL) as process:
        until(lambda: log.exists() and "SERVICE ALERT" in log.read_text())
        process.terminate()

    assert re.search(rf"SERVICE ALERT: node;s;CRITICAL;HARD;1;{REASON}", log.read_text())


def test_icinga_accepts_the_command() -> None:
    icinga = program("icinga2")
    with tempfile.TemporaryDirectory() as name:  # it gives up root's rights
        folder = Path(name)
        folder.chmod(0o777)
        config = written(folder / "icinga2.conf", block("conf", "CheckCommand"))

        folders = (f"-D{option}={folder}" for option in ("DataDir", "LogDir", "CacheDir"))
        done = run(icinga, "daemon", "-C", "-c", config, *folders)

    assert done.returncode == 0, done.stdout
    assert "Instantiated 1 CheckCommand" in done.stdout


# ---- node-problem-detector -----------------------------------------------------------------------

OF_NPD = {
    "plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules", "invoke_interval",
    "timeout", "max_output_length", "concurrency", "enable_message_change_based_condition_update",
    "type", "reason", "message", "condition", "path", "args",
}  # fmt: skip


def test_node_problem_detector_gets_what_it_documents() -> None:
    config = json.loads(block("json", "pluginConfig"))

    tables = [config, config["pluginConfig"], *config["conditions"], *config["rules"]]
    assert {key for table in tables for key in table} <= OF_NPD
    assert config["plugin"] == "custom"
    assert config["pluginConfig"]["timeout"] == "60s"
    conditions = {condition["type"] for condition in config["conditions"]}
    assert all(rule["condition"] in conditions for rule in config["rules"])
    (rule,) = config["rules"]
    for machine, code in ((SICK, 1), (WELL, 0), (Path("/nowhere"), 2)):
        done = run(sys.executable, "-m", "mlbackends", *rule["args"], machine)

        assert done.returncode == code
        assert 0 < len(done.stdout.strip().encode()) <= config["pluginConfig"]["max_output_length"]
        assert not done.stdout or "\n" not in done.stdout.strip()


# ---- taints of a fleet ---------------------------------------------------------------------------


def test_kubectl_taints_the_sick_nodes(tmp_path: Path) -> None:
    """Let the real kubectl run the commands; the API server is a stand-in with three nodes."""
    kubectl = program("kubectl")
    patches: dict[str, Any] = {}

    class Server(http.server.BaseHTTPRequestHandler):
        def answer(self, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path, name = self.path.partition("?")[0], self.path.rpartition("/")[2].partition("?")[0]
            row = {"name": "nodes", "namespaced": False, "kind": "Node", "verbs": ["get", "patch"]}
            fixed: dict[str, dict[str, Any]] = {
                "/api": {"kind": "APIVersions", "versions": ["v1"]},
                "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
                "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [row]},
            }
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
            self.answer(fixed.get(path, node))

        def do_PATCH(self) -> None:
            name = self.path.rpartition("/")[2].partition("?")[0]
            patches[name] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **patches[name]})

        def log_message(self, *_: object) -> None:
            pass

    report = run(sys.executable, "-m", "mlbackends", "info", "--root", SICK, "--format", "json").stdout
    for node in ("node003", "node017", "-A", "Not_One"):
        written(tmp_path / "reports" / f"{node}.json", report)
    arguments = ("fleet", "doctor", tmp_path / "reports", "--format", "kubernetes")
    script = run(sys.executable, "-m", "mlbackends", *arguments).stdout
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        command = f"{kubectl} -s http://127.0.0.1:{server.server_port} "
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = run("sh", "-ec", script.replace("\nkubectl ", f"\n{command}"), env=environment)
        server.shutdown()

    assert done.stdout == "node/node003 modified\nnode/node017 modified\n", done.stderr
    taint = {"effect": "NoSchedule", "key": "mlbackends/node-problem", "value": "nvidia-module-does-not-fit"}
    assert {name: patch["spec"]["taints"] for name, patch in patches.items()} == {
        "node003": [taint],
        "node017": [taint],
    }


# ---- Prometheus and systemd ----------------------------------------------------------------------


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    promtool = program("promtool")
    path = written(tmp_path / "backends.yml", block("yaml", "rules.d"))

    done = run(promtool, "check", "rules", path)

    assert (done.returncode, done.stderr) == (0, "")


#: What three nodes have: one is sick, one has an accepted finding, and one was last checked long ago.
LOST = 'code="gpu-lost",severity="error",waived="false",problem="node"'
SERIES = {
    f'backends_check_failed{{instance="a",{LOST}}}': "1x400",
    f'backends_check_failed{{instance="c",{LOST}}}': "0x400",
    'backends_check_failed{instance="b",code="ecc",severity="error",waived="true",problem="node"}': "1x400",
    'backends_check_unknown{instance="c",code="fabric"}': "1x400",
    'backends_fingerprint_info{instance="a",probe="nvidia",fp="1:a"}': "1x400",
    'backends_fingerprint_info{instance="b",probe="nvidia",fp="1:b"}': "1x400",
    'backends_last_run_timestamp_seconds{instance="a"}': "0+60x400",
    'backends_last_run_timestamp_seconds{instance="b"}': "0+60x400",
    'backends_last_run_timestamp_seconds{instance="c"}': "0x400",
}
DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
SHOWN = {
    "Sick nodes": [("{}", 1)],
    "Nodes that were checked": [("{}", 2)],
    "Old results": [("{}", 1)],
    "Accepted findings": [("{}", 1)],
    "Nodes with each finding": [('{code="gpu-lost", severity="error"}', 1)],
    "Findings now": [(next(iter(SERIES)), 1)],
    "Kinds of nodes": [('{fp="1:a", probe="nvidia"}', 1), ('{fp="1:b", probe="nvidia"}', 1)],
    "Not checked": [('{code="fabric"}', 1)],
}


def test_promtool_gets_the_alerts_and_what_the_panels_show(tmp_path: Path) -> None:
    promtool = program("promtool")
    written(tmp_path / "backends.yml", block("yaml", "rules.d"))
    sick = {"instance": "a", "code": "gpu-lost", "severity": "error", "waived": "false", "problem": "node"}
    alerts: dict[str, list[Any]] = {
        "NodeProblem": [{"exp_labels": sick, "exp_annotations": {"summary": "a: gpu-lost"}}],
        "HealthCheckStale": [{"exp_labels": {"instance": "c"}}],
        "NodesDiffer": [
            {"exp_labels": {"probe": "nvidia"}, "exp_annotations": {"summary": "2 kinds of nvidia"}}
        ],
    }
    queries = [
        {
            "expr": re.sub(r"\$\w+", ".*", panel["targets"][0]["expr"]),
            "eval_time": "3h",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in SHOWN[panel["title"]]],
        }
        for panel in DASHBOARD["panels"]
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in SERIES.items()],
        "alert_rule_test": [
            {"eval_time": "3h", "alertname": name, "exp_alerts": rows} for name, rows in alerts.items()
        ],
        "promql_expr_test": queries,
    }
    path = written(tmp_path / "test.yml", json.dumps({"rule_files": ["backends.yml"], "tests": [test]}))

    done = run(promtool, "test", "rules", path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_what_the_metrics_have() -> None:
    metrics = json.loads((ROOT / "cli/mlbackends_cli/text/exposition.json").read_text(encoding="utf-8"))
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    panels = DASHBOARD["panels"]
    text = json.dumps(DASHBOARD)

    assert {*re.findall(r"backends_\w+", text)} <= metrics.keys()
    assert {*re.findall(r"\$\{?([a-z]+)", text)} == variables
    assert len({panel["id"] for panel in panels}) == len(panels)
    squares = [
        (grid["x"] + column, grid["y"] + row)
        for grid in (panel["gridPos"] for panel in panels)
        for column in range(grid["w"])
        for row in range(grid["h"])
    ]
    assert len({*squares}) == len(squares) and max(column for column, _ in squares) < 24


def test_the_dashboard_has_only_fields_of_grafanas_own_schema() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")

    def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
        if isinstance(before, dict):
            for key, value in before.items():
                yield from lost(value, after[key], f"{path}/{key}") if key in after else [f"{path}/{key}"]
        elif isinstance(before, list):
            for at, (first, second) in enumerate(zip(before, after, strict=True)):
                yield from lost(first, second, f"{path}/{at}")
        elif before != after:
            yield path

    plugins.register_default_plugins()
    read = models.Dashboard.from_json(DASHBOARD)

    assert [*lost(DASHBOARD, json.loads(encoder.JSONEncoder().encode(read)))] == []


def test_the_rules_ask_for_series_that_are_there(tmp_path: Path) -> None:
    command = block("ini", "ExecStart").partition("ExecStart=")[2].splitlines()[0].split()
    path = tmp_path / "backends.prom"
    done = run(backends(tmp_path, SICK), *command[1 : command.index("--output") + 1], path, *command[-2:])
    assert (done.returncode, done.stderr) == (0, "")

    text = path.read_text()

    names = set(re.findall(r"\bbackends_\w+", block("yaml", "rules.d")))
    assert names <= set(re.findall(r"^(\w+)\{", text, re.MULTILINE))
    alarm = r'^backends_check_failed\{.*severity="error",waived="false",problem="node"\} 1$'
    assert re.search(alarm, text, re.MULTILINE)
    assert re.search(r'^backends_fingerprint_info\{.*probe="machine",fp="1:\w+"\} 1$', text, re.MULTILINE)


def test_node_exporter_serves_the_file(tmp_path: Path) -> None:
    exporter = program("prometheus-node-exporter")
    run(
        backends(tmp_path, SICK), "doctor", "--format", "prometheus",
        "--output", tmp_path / "backends.prom", "--fail-on", "never",
    )  # fmt: skip
    (port,) = free_ports(1)
    arguments = (f"--collector.textfile.directory={tmp_path}", "--collector.disable-defaults")
    address = f"127.0.0.1:{port}"

    def scraped() -> str:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
                return str(page.read().decode())
        except OSError:
            return ""

    with subprocess.Popen(
        [exporter, *arguments, "--collector.textfile", f"--web.listen-address={address}"],
        stderr=subprocess.DEVNULL,
    ) as process:
        text = until(scraped)
        process.terminate()

    assert "node_textfile_scrape_error 0" in text
    assert 'backends_fingerprint_info{fp="1:' in text


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    for kind, language in (("service", "ExecStart"), ("timer", "OnBootSec")):
        text = block("ini", language).replace(COMMAND, "/bin/true")
        written(tmp_path / f"backends-metrics.{kind}", text)

    done = run(analyze, "verify", "--man=no", tmp_path / "backends-metrics.timer")

    assert (done.returncode, done.stderr) == (0, "")


# ---- Kubernetes ----------------------------------------------------------------------------------


def test_every_command_of_the_manifests_can_be_typed(tmp_path: Path) -> None:
    daemon = yaml.safe_load(block("yaml", "DaemonSet"))
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    script = container["args"][0].replace("sleep 600 & wait", "exit")
    for mount in mounts:
        script = script.replace(f" {mount}/", f" {tmp_path}{mount}/")
        (tmp_path / mount.lstrip("/")).mkdir()
    backends(tmp_path, WELL)
    (tmp_path / "backends").write_text((tmp_path / "backends").read_text().replace(f'"$@" "{WELL}"', '"$@"'))

    done = run("/bin/sh", "-c", script, env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert (done.returncode, done.stderr) == (0, "")
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert files == [
        "features.d/backends-doctor",
        "features.d/backends-info",
        "textfile/backends.prom",
    ]


@pytest.mark.parametrize("kind", ["DaemonSet", "Pod"])
def test_the_manifests_fit_the_schemas_of_kubernetes(kind: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")

    manifest = yaml.safe_load(block("yaml", f"kind: {kind}\n"))

    validate.validate(manifest, validate.latest_version(), strict=True)
