"""The environment of a case: real wheels, unpacked for its Python and machine, below a root of its own.

What a case does not state comes from no machine: the root has the C library of this machine, if it is of the
same architecture, and nothing else of it. No interpreter is installed; one stands in that defines what the
wheels' extension modules lack of Python's C API. Requirements that no wheel of the case meets are met by
distributions with an empty module each, as the environment of the thread was complete.
"""

import json
import os
import posixpath
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import MlBackendsError, NotALibrary
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.host import Host
from mlbackends.host.python.requirements import unmet
from mlbackends.libraries.elf import ElfImage
from mlbackends.libraries.loader_cache import cached_libraries
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.loading.linker import default_folders
from mlbackends_replay.cases import Case, Installed
from mlbackends_replay.stand_ins import StandIn, elf_file

#: What every Linux with a Python has: the C library, those of GCC, and zlib.
_BASE = (
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
    "libmvec.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "libatomic.so.1", "libz.so.1",
)  # fmt: skip
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
#: A processor of the level x86-64-v3.
_CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) CPU
flags\t\t: fpu sse sse2 cx16 sse4_1 sse4_2 popcnt movbe ssse3 lahf_lm avx f16c fma avx2 bmi1 bmi2 abm
"""
#: The oldest C library that a wheel can ask for by its tag, and one newer than all.
_GLIBC_MINORS = range(45, 4, -1)
_PATCH = "9"
#: The end of a stand-in for a package: what the package itself holds is not known.
_OPEN = "__path__ += []\n\n\ndef __getattr__(name): ...\n"
#: An import that is not inside a function or a `try`.
_IMPORT = pattern(r"(?m)^(?:import|from)[ \t]+([A-Za-z_]\w*)")


class NotRebuilt(MlBackendsError):
    """The environment of a case cannot be made on this machine."""


def cache_folder() -> str:
    """Return the folder with the wheels and environments: MLBACKENDS_REPLAY, or one below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("MLBACKENDS_REPLAY") or os.path.join(base, "mlbackends-replay")


# ---- wheels -----------------------------------------------------------------------------------------


def wheel_path(case: Case, requirement: str, *, may_download: bool = True) -> str:
    """Return the file of a wheel, which is downloaded once; "" if it is not here and may not be.

    Raises NotRebuilt where pip cannot have it.
    """
    if requirement.endswith(".whl"):
        return requirement
    key = f"{requirement.replace('==', '-')}-py{case.python}-{case.machine}"
    folder = os.path.join(cache_folder(), "wheels", key)
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")] if os.path.isdir(folder) else []
    if not wheels and not may_download:
        return ""
    if not wheels:
        platforms = [case.machine]
        if case.machine in _LOADERS:
            names = [f"manylinux_2_{minor}" for minor in _GLIBC_MINORS]
            names += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
            platforms = [f"{name}_{case.machine}" for name in names]
        arguments = [part for platform in platforms for part in ("--platform", platform)]
        arguments += ["--python-version", case.python, "--no-deps", "--only-binary", ":all:", "-d", folder]
        command = [sys.executable, "-m", "pip", "download", "-q", *arguments, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotRebuilt(f"{requirement} cannot be downloaded: {lines[-1] if lines else 'pip failed'}")
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
    return os.path.join(folder, wheels[0])


# ---- the environment ----------------------------------------------------------------------------------


class _Environment:
    """The folder in which the environment of a case is made."""

    def __init__(self, case: Case, folder: str) -> None:
        self.case, self.folder = case, folder
        self.is_windows = case.machine.startswith("win")
        self.machine = "x86_64" if self.is_windows else case.machine
        self.prefix = "C:/Python" if self.is_windows else "/usr/local"
        library = f"{self.prefix}/Lib" if self.is_windows else f"{self.prefix}/lib/python{case.python}"
        self.site = f"{library}/site-packages"
        self.program = (
            f"{self.prefix}/python.exe" if self.is_windows else f"{self.prefix}/bin/python{case.python}"
        )
        self.path = [library, self.site]
        self._lacking: dict[str, set[str]] = {}

    def at(self, path: str) -> str:
        """Return where a path of the environment is on this machine."""
        path = posixpath.normpath("/" + path.replace("SITE", self.site).replace(":", ""))  # never above it
        return os.path.join(self.folder, "root", path.lstrip("/"))

    def write(self, path: str, data: bytes | str) -> None:
        """Write a file of the environment."""
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        with open(self.at(path), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def unpack(self, requirement: str) -> None:
        """Unpack a wheel as pip does; its RECORD lists what was unpacked."""
        patterns = self.case.keep.get(requirement, ("*",))
        with zipfile.ZipFile(wheel_path(self.case, requirement)) as wheel:
            record, kept = "", []
            for entry in wheel.infolist():
                name = _installed_as(entry.filename, self.prefix, self.site)
                is_metadata = ".dist-info/" in name
                if entry.is_dir() or not (
                    is_metadata or any(fnmatchcase(entry.filename, p) for p in patterns)
                ):
                    continue
                if name.endswith(".dist-info/RECORD"):
                    record = name
                target = self.at(name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with wheel.open(entry) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                kept.append(f"{posixpath.relpath(name, self.site)},,{entry.file_size}")
        self.write(record, "".join(f"{line}\n" for line in kept))

    def install(self, dist: Installed) -> None:
        """Write a distribution that stands in for one."""
        metadata = f"Metadata-Version: 2.1\nName: {dist.name}\nVersion: {dist.version}\n"
        info = f"{dist.name.replace('-', '_')}-{dist.version}.dist-info"
        paths = [*dist.files, *(library.path.removeprefix("SITE/") for library in dist.libraries)]
        files = {**dist.files, f"{info}/METADATA": metadata, f"{info}/INSTALLER": "pip\n"}
        files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*paths, *files, f"{info}/RECORD"))
        for path, text in files.items():
            self.write(f"{self.site}/{path}", text)
        for library in dist.libraries:
            self.write(library.path, elf_file(library, self.machine))

    def describe(self) -> Host:
        """Write host.json and return the host."""
        python = {
            "executable": self.program,
            "version": f"{self.case.python}.{_PATCH}",
            "implementation": "cpython",
            "prefix": self.prefix,
            "base_prefix": self.prefix,
            "path": self.path,
        }
        system, machine = ("Windows", "AMD64") if self.is_windows else ("Linux", self.machine)
        description = {
            "platform": "win32" if self.is_windows else "linux",
            "uname": {
                "sysname": system,
                "machine": machine,
                "release": "6.8.0",
                "version": "",
                "nodename": "case",
            },
            "environment": {
                name: value.replace("SITE", self.site) for name, value in self.case.environment.items()
            },
            "python": python,
            "system": {}
            if self.is_windows
            else {"libc": f"glibc {_own_glibc() or '2.36'}", "page_size": 4096},
        }
        with open(os.path.join(self.folder, "host.json"), "w", encoding="utf-8") as file:
            json.dump(description, file, indent=1)
        return Host(self.folder)

    # ---- the machine --------------------------------------------------------------------------------

    def add_machine(self) -> None:
        """Write the processor, the driver, the C library and the libraries of the system."""
        loader = _LOADERS[self.machine]
        self.write("/proc/cpuinfo", _CPUINFO if self.machine == "x86_64" else "processor\t: 0\n")
        if self.case.driver:
            words = (
                f"NVRM version: NVIDIA UNIX {self.machine} Kernel Module  {self.case.driver}  Release Build\n"
            )
            self.write("/proc/driver/nvidia/version", words)
        own = Host()
        is_own = own.platform == "linux" and own.machine == self.machine and own.exists(loader)
        folder = default_folders(own, loader)[0] if is_own else "/usr/lib"
        ours = {posixpath.basename(path): path for path in reversed(cached_libraries(own))} if is_own else {}
        for soname in (*_BASE, loader):
            source = loader if soname == loader and is_own else ours.get(soname, "")
            target = loader if soname == loader else f"{folder}/{soname}"
            if source:
                os.makedirs(os.path.dirname(self.at(target)), exist_ok=True)
                shutil.copyfile(source, self.at(target))
            else:
                self.write(target, elf_file(StandIn(target), self.machine))
        release = self.case.driver
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1") if release else ():
            self.write(f"{folder}/{name[:-1]}{release}", elf_file(StandIn(name), self.machine))
            os.symlink(f"{name[:-1]}{release}", self.at(f"{folder}/{name}"))
        loader_needs = ("libm.so.6", "libc.so.6")
        program = StandIn(self.program, "-", loader_needs, defines=self.lacking("Py"), interpreter=loader)
        libraries = [StandIn(f"{folder}/{soname}") for soname in self.case.system]
        for library in (program, *libraries, *self.case.libraries):
            defined = (*library.defines, *self.lacking(posixpath.basename(library.path)))
            self.write(library.path, elf_file(replace(library, defines=defined), self.machine))

    def lacking(self, of: str) -> tuple[str, ...]:
        """Return the symbols that the wheels' files lack: in a version of a library, or of the prefix Py."""
        if not self._lacking:
            for top, _, names in os.walk(self.at(self.site)):
                for name in names:
                    if name.endswith(".so") or ".so." in name:
                        with suppress(NotALibrary, OSError), ElfImage(os.path.join(top, name)) as image:
                            for symbol in DynamicSymbols(image).lacking.values():
                                text = str(symbol)
                                key = "Py" if text.startswith(("Py", "_Py")) else symbol.file
                                self._lacking.setdefault(key, set()).add(text)
        return tuple(sorted(self._lacking.get(of, ())))

    def add_requirements(self, host: Host) -> None:
        """Install a stand-in for each requirement that no wheel meets, and for each module that none has."""
        for row in unmet(host):
            name = row["needs"]
            if name not in (*self.case.uninstalled, "python"):
                version = _fitting(row.get("wanted", ""))
                self.install(
                    torch(version, self.case.python) if name == "torch" else Installed(name, version)
                )
        present = {name.partition(".")[0] for name in os.listdir(self.at(self.site))}
        modules = {}
        for top, _, names in os.walk(self.at(self.site)):
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
                        modules.update(dict.fromkeys(_IMPORT.findall(file.read())))
        absent = modules.keys() - present - sys.stdlib_module_names - {*self.case.uninstalled}
        files = {f"{name}/__init__.py": _OPEN for name in sorted(absent)}
        self.install(Installed("modules-of-requirements", "1.0", files))


def rebuild(case: Case, folder: str) -> None:
    """Make the environment of a case in a folder, unless it is there. Raises NotRebuilt."""
    own = _own_glibc()
    if case.glibc_below and own and dotted_numbers(own) >= dotted_numbers(case.glibc_below):
        raise NotRebuilt(
            f"needs a machine with a C library older than {case.glibc_below}; this one has {own}"
        )
    sources = {path: os.stat(path).st_mtime for path in (wheel_path(case, wheel) for wheel in case.wheels)}
    stamp, state = os.path.join(folder, "case.json"), msgspec.json.encode([case, sources])
    if os.path.exists(stamp) and Host().read_bytes(stamp) == state:
        return
    shutil.rmtree(folder, ignore_errors=True)
    environment = _Environment(case, folder)
    for requirement in case.wheels:
        environment.unpack(requirement)
    for dist in case.installs:
        is_torch = dist.name == "torch" and not dist.libraries
        environment.install(torch(dist.version, case.python, dist.files) if is_torch else dist)
    for path in case.remove:
        os.remove(environment.at(f"{environment.site}/{path}"))
    environment.add_requirements(environment.describe())
    if not environment.is_windows:
        environment.add_machine()
    with open(stamp, "wb") as file:
        file.write(state)


def torch(version: str, python: str, files: dict[str, str] | None = None) -> Installed:
    """Return a stand-in for torch: its version, and libraries with its sonames and no symbols.

    The build, such as "+cu130" or "+rocm7.14.0", decides which libraries it has.
    """
    build = version.partition("+")[2]
    toolkit = build[2:-1] + "." + build[-1] if build.startswith("cu") else ""
    hip = build.removeprefix("rocm") if build.startswith("rocm") else ""
    names = ["c10", "torch", "torch_cpu", "torch_python", "torch_global_deps", "shm"]
    names += ["c10_cuda", "torch_cuda", "torch_cuda_linalg"] * bool(toolkit)
    names += ["c10_hip", "torch_hip"] * bool(hip)
    lines = f"__version__ = {version!r}\ncuda = {toolkit or None!r}\nhip = {hip or None!r}\n"
    texts = {"torch/__init__.py": f"from .version import __version__\n{_OPEN}", "torch/version.py": lines}
    libraries = [StandIn(f"SITE/torch/lib/lib{name}.so", runpath="$ORIGIN") for name in names]
    tag = python.replace(".", "")
    libraries.append(
        StandIn(
            f"SITE/torch/_C.cpython-{tag}.so",
            "-",
            tuple(f"lib{name}.so" for name in names if name != "torch_global_deps"),
            "$ORIGIN/lib",
            ("PyInit__C",),
        )
    )
    return Installed("torch", version, {**texts, **(files or {})}, tuple(libraries))


def _installed_as(name: str, prefix: str, site: str) -> str:
    """Return the path at which a file of a wheel is installed."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data") or "/" not in rest:
        return f"{site}/{name}"
    kind, _, below = rest.partition("/")
    places = {"scripts": f"{prefix}/bin", "data": prefix, "headers": f"{prefix}/include"}
    return f"{places.get(kind, site)}/{below}"


def _fitting(wanted: str) -> str:
    """Return a version that satisfies a specifier."""
    from packaging.specifiers import SpecifierSet

    clauses = SpecifierSet(wanted)
    named = [clause.version.replace(".*", ".0") for clause in clauses]
    below = [f"{version}.0.1" for version in named] + ["0.1", "1.0", "2.0", "9999"]
    return next(
        (version for version in (*named, *below) if clauses.contains(version, prereleases=True)), "1.0"
    )


def _own_glibc() -> str:
    return str(Host().system("libc") or "").partition("glibc ")[2]
