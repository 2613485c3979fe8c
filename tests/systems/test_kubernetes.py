"""`fleet recipe kubernetes` and the manifests of docs/clusters.md on an API server of Kubernetes.

etcd, kube-apiserver and kubectl are real, and so are validation, admission and the path of a log from
a kubelet's port to kubectl. `Machines` is a stand-in for the Job controller, the scheduler and six
kubelets: it makes the pods of a Job, runs what their containers would run as processes of this machine,
and serves their logs. Of the six nodes two report and four do not, each in its way.
"""

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml  # type: ignore[import-untyped]
from test_fleet_engines import (
    CRASHED,
    GARBAGE,
    HUNG,
    MISSING,
    WHOLE,
    free_port,
    program,
    started,
    wait_for,
)

pytestmark = pytest.mark.slow

FIXTURES = (program,)
TREE = Path(__file__).parents[2]
NODES = tuple(f"node{number}" for number in range(1, 7))
TOKEN = "a-token-of-this-test"
BACKENDS = f'#!/bin/sh\nexec {sys.executable} -m mlbackends "$@"\n'


class Server:
    """An API server, and what a client needs: its address, its certificate and a kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        self.address = f"https://127.0.0.1:{free_port()}"
        self.context = ssl.create_default_context(cafile=str(self.certificate))
        self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "test",
                "cluster": {"server": self.address, "certificate-authority": str(self.certificate)},
            }],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }  # fmt: skip
        (folder / "config").write_text(json.dumps(config))
        self.variables = {**os.environ, "KUBECONFIG": str(folder / "config"), "HOME": str(folder)}

    def __call__(self, path: str, body: Any = None, method: str = "") -> Any:
        """Return what the API answers; `body` is created, or merged with PATCH."""
        kind = "merge-patch+json" if method == "PATCH" else "json"
        request = urllib.request.Request(
            self.address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": f"application/{kind}"},
            method=method or None,
        )
        with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text[:1] == b"{" else text

    def kubectl(self, *words: str, text: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", *words], input=text, capture_output=True, text=True, timeout=120,
            env=self.variables, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_ready(self) -> bool:
        try:
            return bool(self("/readyz") == b"ok")
        except URLError:
            return False


PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"


class Machines(threading.Thread):
    """In the place of the Job controller, the scheduler and a kubelet on each node but the missing one."""

    def __init__(self, server: Server, path: str) -> None:
        super().__init__(daemon=True)
        self.server, self.path = server, path
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.phases: dict[str, str] = {}
        self.is_over = threading.Event()
        machines = self

        class Kubelet(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, kind, _, pod, container = self.path.partition("?")[0].split("/")
                assert (kind, container) == ("containerLogs", "backends")
                log = machines.log(pod).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(log)))
                self.end_headers()
                self.wfile.write(log)

            def log_message(self, *_: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        self.kubelets = []
        for node in NODES:
            port = free_port()
            if node != MISSING:
                kubelet = socketserver.ThreadingTCPServer(("127.0.0.1", port), Kubelet)
                kubelet.daemon_threads = True
                kubelet.socket = context.wrap_socket(kubelet.socket, server_side=True)
                threading.Thread(target=kubelet.serve_forever, daemon=True).start()
                self.kubelets.append(kubelet)
            server("/api/v1/nodes", {"metadata": {"name": node}})
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                "conditions": [{"type": "Ready", "status": str(node != MISSING)}],
            }
            server(f"/api/v1/nodes/{node}/status", {"status": status}, "PATCH")

    def log(self, pod: str) -> Path:
        return self.server.folder / f"{pod}.log"

    def run(self) -> None:
        while not self.is_over.wait(0.2):
            pods = self.server(PODS)["items"]
            for pod in pods:
                if "job-name" in pod["metadata"]["labels"] and pod["spec"]["nodeName"] != MISSING:
                    self.further(pod)
            for job in self.server(JOBS)["items"]:
                if not job["status"].get("conditions"):
                    name = job["metadata"]["name"]
                    own = [pod for pod in pods if pod["metadata"]["labels"]["job-name"] == name]
                    self.control(job, own)

    def further(self, pod: dict[str, Any]) -> None:
        """Start what a pod's container runs, or tell the API what became of it."""
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        (container,) = pod["spec"]["containers"]
        phase = "Running"
        if name not in self.processes:
            fields = {"spec.nodeName": node}
            variables = {
                variable["name"]: fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
                for variable in container["env"]
            }
            with self.log(name).open("wb") as log:
                self.processes[name] = subprocess.Popen(
                    [*container["command"], *container["args"]], stdout=log,
                    stderr=subprocess.STDOUT, env={"PATH": self.path, **variables},
                    start_new_session=True,
                )  # fmt: skip
        elif (code := self.processes[name].poll()) is not None:
            phase = "Failed" if code else "Succeeded"
        if self.phases.get(name) != phase:
            self.server(f"{PODS}/{name}/status", {"status": {"phase": phase}}, "PATCH")
            self.phases[name] = phase

    def control(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        """Do what the Job controller does: pods, and none that runs on once more failed than may."""
        name, spec = job["metadata"]["name"], job["spec"]
        phases = [pod["status"]["phase"] for pod in pods]
        if not pods:
            template = spec["template"]
            for node in NODES[: spec["parallelism"]]:
                labels = {**template["metadata"]["labels"], "job-name": name}
                made = {"generateName": f"{name}-", "labels": labels}
                self.server(PODS, {"metadata": made, "spec": {**template["spec"], "nodeName": node}})
        elif phases.count("Failed") > spec["backoffLimit"]:
            for pod in pods:
                if pod["status"]["phase"] in {"Pending", "Running"}:
                    self.server(f"{PODS}/{pod['metadata']['name']}", method="DELETE")
            self.ended(name, "Failed")
        elif phases.count("Succeeded") == spec["completions"]:
            self.ended(name, "Complete")

    def ended(self, job: str, condition: str) -> None:
        conditions = [{"type": condition, "status": "True"}]
        self.server(f"{JOBS}/{job}/status", {"status": {"conditions": conditions}}, "PATCH")

    def stop(self) -> None:
        self.is_over.set()
        self.join()
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for kubelet in self.kubelets:
            kubelet.shutdown()
            kubelet.server_close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start etcd and an API server on the loopback; skip outside the job of .ci/systems."""
    programs = os.environ.get("KUBERNETES")
    if programs is None:
        pytest.skip("KUBERNETES is not set: .ci/systems kubernetes")
    folder = tmp_path_factory.mktemp("server")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", folder / "key.pem", "-out", folder / "certificate.pem",
        ],
        capture_output=True, check=True,
    )  # fmt: skip
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    server = Server(folder)
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = [
        "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={store}",
        f"--advertise-client-urls={store}", f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
    ]  # fmt: skip
    api = [
        f"{programs}/kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1",
        f"--secure-port={server.address.rpartition(':')[2]}", f"--cert-dir={folder}",
        "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
        f"--tls-cert-file={server.certificate}", f"--tls-private-key-file={server.key}",
        f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
        "--anonymous-auth=false", "--service-account-issuer=https://127.0.0.1",
        f"--service-account-key-file={server.key}",
        f"--service-account-signing-key-file={server.key}",
        "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
        "--disable-admission-plugins=ServiceAccount",  # whose account a controller makes
        f"--kubelet-certificate-authority={server.certificate}",
        "--kubelet-preferred-address-types=InternalIP", "--feature-gates=TTLAfterFinished=true",
    ]  # fmt: skip
    with started(etcd, api):
        wait_for(server.is_ready, 300)
        yield server


@pytest.fixture(scope="module")
def machines(server: Server, program: Path) -> Iterator[Machines]:
    own = server.folder / "bin"
    own.mkdir()
    (own / "backends").write_text(BACKENDS)
    (own / "backends").chmod(0o755)
    server.variables["PATH"] = f"{own}:{os.environ['PATH']}"
    machines = Machines(server, f"{program.parent}:{os.environ['PATH']}")
    machines.start()
    yield machines
    machines.stop()


def contains(stored: Any, manifest: Any) -> bool:
    """Tell whether nothing of a manifest was lost."""
    if isinstance(manifest, dict):
        return all(key in stored and contains(stored[key], manifest[key]) for key in manifest)
    if isinstance(manifest, list):
        return len(stored) == len(manifest) and all(map(contains, stored, manifest))
    return bool(stored == manifest or str(stored) == str(manifest))


@pytest.mark.parametrize("kind", ["DaemonSet", "Pod"])
def test_the_api_takes_the_manifests_of_the_documentation(server: Server, kind: str) -> None:
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    if not server("/apis/node.k8s.io/v1/runtimeclasses")["items"]:
        server("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    page = (TREE / "docs/clusters.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"```yaml\n([^`]*\nkind: {kind}\n[^`]*)```", page)

    stored = json.loads(server.kubectl("create", "-o", "json", "-f", "-", text=text))

    assert contains(stored, yaml.safe_load(text))
    server.kubectl("delete", "--wait=false", "-f", "-", text=text)


def summarized(text: str) -> dict[str, Any]:
    """Return what JSON of `fleet summarize` says of each node."""
    fleet = json.loads(text)
    found = {node: silent["status"] for silent in fleet["silent"] for node in silent["nodes"]}
    return found | {
        "whole": sorted(node for configuration in fleet["configurations"] for node in configuration["nodes"])
    }


@pytest.fixture(scope="module")
def script(server: Server, machines: Machines) -> str:
    """Return the recipe with shorter limits, and run it: what it printed is in a file."""
    del machines
    done = subprocess.run(
        [server.folder / "bin/backends", "fleet", "recipe", "kubernetes"], capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    script = done.stdout.replace("-k 5 70", "-k 1 3").replace("=180s", "=20s").rstrip()
    assert script.count("-k 1 3") == script.count("=20s") == 1
    done = subprocess.run(
        [shutil.which("sh") or "sh", "-c", f"{script} --format json"], capture_output=True,
        text=True, timeout=200, env=server.variables, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (server.folder / "fleet.json").write_text(done.stdout)
    return script


def test_the_recipe_names_the_nodes_that_fail(server: Server, script: str) -> None:
    del script
    assert summarized((server.folder / "fleet.json").read_text()) == {
        "whole": [*WHOLE], HUNG: "timeout", CRASHED: "error", GARBAGE: "garbled",
        MISSING: "unreachable",
    }  # fmt: skip


def test_the_api_takes_the_job_of_the_recipe(server: Server, script: str) -> None:
    manifest = yaml.safe_load(script.split("<<'END'")[1].partition("\n")[2].partition("\nEND")[0])
    manifest["spec"] |= {"completions": len(NODES), "parallelism": len(NODES)}
    del manifest["apiVersion"], manifest["kind"]  # which a list leaves out

    (job,) = server(JOBS)["items"]

    assert contains(job, manifest)


def test_pods_are_no_nodes(server: Server, script: str) -> None:
    """What `kubectl logs --prefix` prints of several pods is read, and the reports name their nodes."""
    del script
    pods = {item["spec"]["nodeName"]: item["metadata"]["name"] for item in server(PODS)["items"]}
    server.kubectl("label", "pod", *(pods[node] for node in WHOLE), "whole=yes")

    labelled = server.kubectl("logs", "-l", "whole=yes", "--prefix", "--tail=-1")
    done = subprocess.run(
        [sys.executable, "-m", "mlbackends", "fleet", "summarize", "--format", "json"],
        input=labelled, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert labelled.startswith("[pod/backends-")
    assert summarized(done.stdout) == {"whole": [*WHOLE]}
