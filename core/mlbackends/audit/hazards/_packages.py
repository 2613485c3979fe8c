"""Hazards of Python's packages and their environment."""

import re
from typing import Any

from mlbackends.audit.environment import FRAMEWORKS, install, install_unmet, readable, reinstall, uninstall
from mlbackends.audit.gpus import ROCBLAS_TARGETS
from mlbackends.audit.hazard import (
    DoesNotApply,
    NotReported,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
    from_warning,
)
from mlbackends.audit.imports import fix, is_named, unimportable, unmet_causes
from mlbackends.audit.libraries import is_of_a_driver
from mlbackends.base.errors import counted, joined
from mlbackends.base.patterns import pattern
from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.host.cpu.floors import unmet_floor
from mlbackends.host.python.installing import quoted
from mlbackends.model.records import OPENED, FactValue, Presence, nonempty

#: The libraries of CUDA whose number is CUDA's own.
_OF_CUDA = pattern(r"lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink)\.so\.(?P<major>\d+)")


def package_cannot_be_imported(report: ReportView) -> Symptoms:
    """Yield one for each cause."""
    unsure = ""
    for failing in unimportable(report):
        modules = joined(failing.modules)
        if not failing.is_certain:
            unsure = unsure or f"import {modules} {failing.cause}"
            continue
        version = report.version(failing.probes[0]) if len(failing.modules) == 1 else ""
        evidence = {f"{name}.imports": report.fact(f"{name}.imports") for name in failing.probes}
        command, hint = fix(report, failing), ""
        if not command and "ended the process" in failing.cause:
            python = quoted(str(report.fact("python.executable", "python")))
            program = quoted(f"import {failing.modules[0]}")
            hint = f"see where it ends: {python} -X faulthandler -c {program}"
        major, _, _ = str(report.fact("torch.cuda_version", "")).partition(".")
        library = _OF_CUDA.search(failing.cause)
        if library and major not in ("", library["major"]):
            hint = f"install the builds for CUDA {major}, which torch is built for"
        yield Symptom(
            f"{f'{modules} {version}'.rstrip()} cannot be imported: {failing.cause}",
            hint=hint,
            command=command,
            evidence=evidence,
            severity=Severity.NOTE if is_of_a_driver(failing.cause) else None,
        )
    if unsure:
        raise NotReported(unsure)
    installed = [name for name in FRAMEWORKS if report.fact(f"{name}.location")]
    imports = [report.fact(f"{probe}.imports", {}).values() for probe in report.record.probes]
    if installed and not any(set(outcomes) - {OPENED} for outcomes in imports):
        depth = report.record.depth
        how = "without --deep" if depth is Presence.USABLE else f"with --depth {depth}"
        raise NotReported(f"no package was imported; the report was made {how}")


_SHOWN = 6


def requirements_not_met(report: ReportView) -> Symptoms:
    """Yield one for all."""
    known = [row for failing in unimportable(report) for row in unmet_causes(report, failing)]
    pairs = set()
    for symptom in numpy_abi(report):
        pairs |= {(name.rpartition(".")[2], "numpy") for name in symptom.evidence}
    for symptom in torch_extension_mismatch(report):
        partners: Any = symptom.evidence.get("torch.partners", [])
        pairs |= {(partner["package"], "torch") for partner in partners}
    rows = [
        row
        for row in report.fact("packages.unmet", [])
        if row not in known and (row["package"], row["needs"]) not in pairs
    ]
    if not rows:
        return
    texts = []
    for row in rows[:_SHOWN]:
        installed = f"{row['installed']} is installed" if "installed" in row else "not installed"
        package = f"{row['package']} {row.get('version', '')}".rstrip()
        texts.append(f"{package} needs {row['needs']}{row.get('wanted', '')} ({installed})")
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    yield Symptom(
        f"{counted(len(rows), 'requirement')} not met: {'; '.join(texts)}{more}",
        command=install_unmet(report, rows),
        evidence={"packages.unmet": rows},
    )


def package_installed_twice(report: ReportView) -> Symptoms:
    """Yield one for each pair."""
    for probe in ("packages", *FRAMEWORKS):
        fact = "installed_twice" if probe == "packages" else "installations"
        rows = report.fact(f"{probe}.{fact}", [])
        for warning in report.warnings(probe, "installed-twice"):
            named = [row for row in rows if row["name"] in warning.message.split()]
            names = dict.fromkeys(row["name"] for row in named)
            yield from_warning(
                warning,
                command=uninstall(report, *names) if names else "",
                evidence={f"{probe}.{fact}": named},
            )


def package_files_changed(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    for probe in FRAMEWORKS:
        for warning in report.warnings(probe, "metadata-mismatch"):
            name = report.fact(f"{probe}.distribution", "")
            if any(name == row["name"] for row in report.fact("packages.installed_twice", [])):
                continue
            yield from_warning(
                warning,
                command=reinstall(report, name, report.package(name)) if name else "",
                evidence={f"{probe}.version": report.version(probe)},
            )


_DEVICES = ("nvidia", "rocm", "xpu")
#: What brings the libraries that a package opens by name.
_EXTRAS = {"onnxruntime-gpu": "onnxruntime-gpu[cuda,cudnn]", "tensorflow": "tensorflow[and-cuda]"}


def package_falls_back(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    has_device = any(report.devices(name) for name in _DEVICES)
    for name in FRAMEWORKS:
        for warning in report.warnings(name, "falls-back"):
            extra = _EXTRAS.get(report.fact(f"{name}.distribution", ""), "")
            lacks_file = "cannot open" in warning.message
            yield from_warning(
                warning,
                command=install(report, extra) if extra and lacks_file else "",
                evidence={f"{name}.accelerators": report.fact(f"{name}.accelerators")},
                severity=None if has_device or lacks_file else Severity.NOTE,
            )


def cpu_build_with_gpu(report: ReportView) -> Symptoms:
    """Yield one for each framework."""
    for probe in ("torch", "jax", "tensorflow"):
        for warning in report.warnings(probe, "degraded"):
            # A build for CUDA is one command everywhere where it is a plugin of jax.
            command = install(report, "--upgrade", warning.hint.split()[-1]) if probe == "jax" else ""
            yield Symptom(
                warning.message,
                hint="" if command else warning.hint,
                command=command,
                evidence={f"{probe}.version": report.version(probe)},
            )
    targets = {*ROCBLAS_TARGETS, *report.fact("rocblas.targets", ())}
    gpus = [gpu for gpu in report.devices("rocm") if gpu.capability in targets]
    rocm = report.probe("rocm")
    if rocm and any("/dev/kfd" in reason.message for reason in rocm.reasons):
        gpus = []  # another hazard, or a container that was not given them
    nvidia = any(True for _ in report.warnings("torch", "degraded"))
    if report.fact("torch.built_for") == "cpu" and gpus and not nvidia:
        named = gpus[0].name or gpus[0].capability or gpus[0].pci_address
        yield Symptom(
            f"torch {report.version('torch')} is built for the CPU only, but there is an AMD GPU ({named})",
            hint="install the build of torch for ROCm",
            evidence={"torch.built_for": "cpu", "rocm.gpu_count": len(gpus)},
        )


def cuda_mixed_majors(report: ReportView) -> Symptoms:
    """Yield one, with the packages that torch was not built for."""
    majors = report.fact("packages.cuda_majors", {})
    torch_major = str(report.fact("torch.cuda_version", "")).partition(".")[0]
    for warning in report.warnings("packages", "cuda-majors-mixed"):
        hint, command = warning.hint, ""
        packages = [set(names) for names in majors.values()]
        shared = [
            pair
            for pair in report.fact("packages.owned_twice", [])
            if sum(not own.isdisjoint({pair["first"], pair["second"]}) for own in packages) > 1
        ]
        if torch_major in majors:
            strangers = [name for major, names in majors.items() if major != torch_major for name in names]
            commands = [uninstall(report, *strangers)]
            commands += [
                reinstall(report, name, report.package(name))
                for pair in shared
                for name in {pair["first"], pair["second"]}.difference(strangers)
            ]
            command = " && ".join(dict.fromkeys(commands))
            hint = f"torch is built for CUDA {torch_major}: uninstall the others"
        overwritten = "".join(
            f"; {pair['first']} and {pair['second']} both installed {pair['example']}" for pair in shared
        )
        yield Symptom(
            warning.message + overwritten,
            hint=hint,
            command=command,
            evidence={"packages.cuda_majors": majors, **({"packages.owned_twice": shared} if shared else {})},
            severity=Severity.ERROR if shared else None,
        )


_TORCH_ON_WINDOWS = "2.4.1"


def numpy_abi(report: ReportView) -> Symptoms:
    """Yield one, with every package that is too old."""
    numpy = report.package("numpy")
    if not satisfies(numpy, ">=2.0.0.dev0"):
        return
    first: dict[str, str] = dict(table("audit/hazards/numpy_abi.toml")["first"])
    if report.fact("host.platform") == "win32":
        first["torch"] = _TORCH_ON_WINDOWS
    old = {
        name: version
        for name, since in first.items()
        if (version := report.package(name)) and satisfies(version, f"<{since}")
    }
    if old:
        listed = ", ".join(
            f"{name} {version} (needs {first[name]} or newer)" for name, version in old.items()
        )
        evidence: dict[str, FactValue] = {
            f"packages.distributions.{name}": version for name, version in {"numpy": numpy, **old}.items()
        }
        yield Symptom(
            f"numpy {numpy} is installed with packages compiled for NumPy 1: {listed}",
            command=install(report, "numpy<2"),
            evidence=evidence,
        )


_BUILDS = ("cu", "cpu", "rocm", "xpu")


def torch_extension_mismatch(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    torch = report.version("torch")
    for partner in report.fact("torch.partners", []):
        name, version, required = partner["package"], partner["version"], partner["wanted"]
        builds = [text.partition("+")[2] for text in (torch, version)]
        if name == "torchvision" and satisfies(version, ">=0.16"):
            builds = [re.sub(r"^(cu\d+)\d$", r"\1", build) for build in builds]
        if satisfies(torch, f"=={required}") is False:
            message = f"{name} {version} is built for torch {required}, but torch {torch} is installed"
            command = install(report, f"torch=={required}", f"{name}=={version.partition('+')[0]}")
        elif builds[0] != builds[1] and all(build.startswith(_BUILDS) for build in builds):
            message = f"{name} {version} and torch {torch} are builds for different devices or CUDA versions"
            command = ""
        else:
            continue
        yield Symptom(
            message, command=command, evidence={"torch.version": torch, "torch.partners": [partner]}
        )
    for extension in report.fact("torch.other_cuda_extensions", []):
        package = extension["path"].rpartition("site-packages/")[2].partition("/")[0]
        # The import that fails is the finding, or the version of the package.
        if is_named(report, extension["needs"]) or any(report.warnings(package, "conflict")):
            continue
        yield Symptom(
            f"{extension['path']} needs {extension['needs']}, but torch {torch} is built for CUDA"
            f" {report.fact('torch.cuda_version', 'of another version')}",
            hint="install the build of that package for torch's CUDA, or a torch for the package's",
            evidence={"torch.version": torch, "torch.other_cuda_extensions": [extension]},
        )


def wheel_files_missing(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    named = set()
    for row in report.fact("packages.missing_files", []):
        name, version, count = row["name"], row["version"], row["files"]
        named.add(name)
        if is_named(report, row["example"]) or is_named(report, f" of {name} {version} "):
            continue
        more = f" (and {count - 1} more of its libraries)" if count > 1 else ""
        yield Symptom(
            f"{f'{name} {version}'.rstrip()} is installed, but {row['example']}{more} is missing",
            command=reinstall(report, name, version),
            evidence={"packages.missing_files": [row]},
        )
    for probe, record in report.record.probes.items():
        for reason in record.reasons:
            words = reason.message.replace(":", " ").replace(",", " ").split()
            if reason.code == "metadata-only" and named.isdisjoint(words):
                name = reason.hint.partition("reinstall ")[2].strip()
                closed = reason.message.partition(" may not read ")[2]
                if closed and any(closed in failing.cause for failing in unimportable(report)):
                    continue
                yield Symptom(
                    reason.message,
                    command=readable(closed) if closed else reinstall(report, name, report.package(name)),
                    evidence={f"{probe}.reasons.code": ["metadata-only"]},
                )


_LIBRARIES = (".so", ".pyd", ".dylib", ".dll")
_ASIDE = frozenset({"test", "tests", "doc", "docs", "example", "examples", "benchmarks", "scripts"})


def wheel_files_overlap(report: ReportView) -> Symptoms:
    """Yield one for each pair of packages."""
    # The distributions of one framework, which its probe has found next to each other.
    installed = [report.fact(f"{name}.installations", []) for name in FRAMEWORKS]
    flavours = [{installation["name"] for installation in flavour} for flavour in installed]
    pairs = report.fact("packages.owned_twice", [])
    for pair, warning in zip(pairs, report.warnings("packages", "file-owned-twice"), strict=False):
        names = {pair["first"], pair["second"]}
        majors = [names.isdisjoint(own) for own in report.fact("packages.cuda_majors", {}).values()]
        if any(names <= together for together in flavours) or majors.count(False) > 1:
            continue
        top, slash, rest = pair["example"].partition("/")
        is_library = rest.endswith(_LIBRARIES) or ".so." in rest
        severity = None if is_library else Severity.WARNING
        yield from_warning(
            warning,
            command=uninstall(report, pair["first"], pair["second"]),
            evidence={"packages.owned_twice": [pair]},
            severity=severity if slash and top not in _ASIDE else Severity.NOTE,
        )


def wheel_needs_newer_cpu(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    if report.fact("cpu.architecture") != "x86_64":
        raise DoesNotApply("requirements are known only for x86-64")
    is_conda = report.fact("python.manager") == "conda"
    has = frozenset(report.need("cpu.features"))
    level = nonempty({"cpu.x86_64_level": report.fact("cpu.x86_64_level")})
    installed = report.fact("packages.distributions", {})
    for name in sorted(installed):
        version = report.package(name)
        if version and (unmet := unmet_floor(name, version, has, installed)):
            row, missing = unmet
            command = install(report, row.instead.format(version=version)) if row.instead else ""
            if row.is_instead_alone:
                command = f"{uninstall(report, name)} && {command}"
            yield Symptom(
                f"{name} {version} needs {', '.join(missing)}, which this CPU lacks"
                f" ({report.fact('cpu.x86_64_level', 'x86-64')})",
                command=command,
                severity=Severity.WARNING if is_conda else None,
                evidence={f"packages.distributions.{name}": version, **level},
            )


_NO_USER_SITE = "export PYTHONNOUSERSITE=1"
_USER = ("/.local/lib/python", "/Library/Python/")


def user_site_shadows(report: ReportView) -> Symptoms:
    """Yield one for each package that is hidden, and one for those that an environment lacks."""
    reported = set()
    for probe in FRAMEWORKS:
        for warning in report.warnings(probe, "hidden-by-user-site"):
            reported.add(probe)
            evidence = {f"{probe}.installations": report.fact(f"{probe}.installations", [])}
            yield Symptom(warning.message, command=_NO_USER_SITE, evidence=evidence)
    isolated = report.fact("python.manager") == "conda" or report.fact("python.is_virtual_environment")
    if not isolated or not report.fact("python.user_site_on_path"):
        return
    places = {probe: str(report.fact(f"{probe}.location", "")) for probe in FRAMEWORKS}
    from_user = {
        probe: place
        for probe, place in places.items()
        if probe not in reported and any(part in place for part in _USER)
    }
    if from_user:
        yield Symptom(
            f"{', '.join(from_user)}: imported from the user's site folder instead of the environment"
            f" {report.fact('python.prefix', '')}: {next(iter(from_user.values()))}",
            command=_NO_USER_SITE,
            evidence={f"{probe}.location": place for probe, place in from_user.items()},
        )


def other_environment_active(report: ReportView) -> Symptoms:
    """Yield one where the probe has seen it."""
    for warning in report.warnings("python", "other-environment"):
        option = warning.hint.rpartition("--python ")[2] if "--python " in warning.hint else ""
        evidence = {"python.prefix": report.fact("python.prefix", "")}
        command = f"backends doctor --python {quoted(option)}" if option else ""
        yield from_warning(warning, command=command, evidence=evidence)
