"""Services: what a node of a cluster runs besides jobs, and the versions of its packages.

Finds:    running services of batch systems, containers, GPUs, InfiniBand, storage and the clock; versions of
          container runtimes, Slurm, OFED and others, as dpkg or rpm has them; what containers
          start with.
Caveats:  services are those of systemd; a container does not see them. RHEL 8 and older keep packages in a
          format that is not read. Programs that no package installed have no version here.
Source:   systemd.slice(5); Docker, "dockerd: configuration file"; containerd, docs/cri/config.md; the package
          managers' formats (core/mlbackends/host/system/package_versions.py).
"""

from contextlib import suppress
from typing import Any

import msgspec

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line, word
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.system.package_versions import package_versions
from mlbackends.host.system.services import running_services
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{running}",)

_RUNTIME = pattern(r'(?m)^\s*default_runtime_name\s*=\s*["\'](\w[\w.-]{0,40})["\']')
_SYSTEMD = pattern(r"(?m)^\s*SystemdCgroup\s*=\s*(true|false)")


def find(host: Host) -> Finding:
    """Read which services run, the packages, and the settings of Docker and containerd."""
    docker: Any = {}
    with suppress(ValueError, RecursionError):
        docker = msgspec.json.decode(host.read("/etc/docker/daemon.json", 65536) or "{}")
    docker = docker if isinstance(docker, dict) else {}
    containerd = host.read("/etc/containerd/config.toml", 65536)
    runtime, systemd = _RUNTIME.search(containerd), _SYSTEMD.search(containerd)
    running = running_services(host)
    facts = {
        "running": sorted(running.intersection(table("host/system/services"))),
        "package_versions": package_versions(host),
        "container_settings": nonempty(
            {
                "docker.default-runtime": word(str(docker.get("default-runtime", ""))),
                "docker.storage-driver": word(str(docker.get("storage-driver", ""))),
                "containerd.default_runtime_name": runtime[1] if runtime else "",
                "containerd.SystemdCgroup": systemd[1] if systemd else "",
                "tuned.profile": one_line(host.read("/etc/tuned/active_profile", 256), 80),
            }
        ),
    }
    if not (reported := nonempty(facts)):
        reason = Reason("not-found", "no service of systemd and no database of packages is visible")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    return Finding(presence=Presence.FOUND, facts=reported)
