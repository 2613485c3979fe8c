"""Python packages: every distribution of the environment, and what does not go together.

Finds:    every *.dist-info and *.egg-info on the import path; files that two distributions wrote;
          NVIDIA's packages for two major versions of CUDA in one environment; requirements that are not met,
          as `pip check` and `uv pip check` find them.
Caveats:  versions are those of the metadata, which does not record the extras that were wanted. A file that
          two packages installed with equal contents is not a conflict.
Source:   PyPA, "Recording installed projects", "Core metadata specifications"; NVIDIA's
          packages on PyPI, whose names end in -cu12, -cu13 or, since CUDA 13, carry the major version in
          the version alone.
"""

from mlbackends.base.errors import counted
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.python import wheel_files
from mlbackends.host.python.packages import Distribution, distributions, python_folders
from mlbackends.host.python.requirements import unmet
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "framework"
SUMMARY = ("{count} packages",)

#: Those without a suffix whose own major version is CUDA's; nvidia-cufft 12 is CUDA 13's.
_CUDA_VERSIONED = (
    "nvidia-cublas", "nvidia-cuda-crt", "nvidia-cuda-cupti", "nvidia-cuda-nvcc", "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime", "nvidia-nvjitlink", "nvidia-nvtx", "nvidia-nvvm",
)  # fmt: skip
#: Names whose own probe warns where they are installed twice.
_WITH_PROBES = frozenset({
    "bitsandbytes", "ctranslate2", "faiss-cpu", "faiss-gpu", "flash-attn", "jax", "kernels",
    "llama-cpp-python", "numpy", "onnxruntime", "openvino", "opt-einsum", "scipy", "sgl-kernel",
    "tensorflow", "torch", "transformer-engine", "triton", "vllm", "xformers",
})  # fmt: skip
#: Requirements that a warning names.
_SHOWN = 3
#: Beginnings of names that come for two majors at once on purpose: each part serves one of them.
_BOTH_AT_ONCE = ("nvidia-cutlass-dsl-",)


def find(host: Host) -> Finding:
    """List what is installed, and compare the files that each distribution lists."""
    everything = {name: dists for name, dists in sorted(distributions(host).items()) if name}
    folders = python_folders(host)
    if not everything:
        message = f"no distribution in {', '.join(folders)}" if folders else "no Python is known"
        return Finding(reasons=(Reason("not-found", message),))
    twice = [dists for dists in everything.values() if len(dists) > 1]
    shared = wheel_files.shared_files(host, [dist for dists in everything.values() for dist in dists])
    first = [dists[0] for dists in everything.values()]
    majors = _cuda_majors(first)
    facts = {
        "count": len(everything),
        "distributions": {dist.name: dist.version for dist in first},
        "installed_twice": [
            {"name": dist.name, "version": dist.version, "folder": dist.folder}
            for dists in twice
            for dist in dists
        ],
        "owned_twice": [
            {
                "first": pair.first.name,
                "second": pair.second.name,
                "files": pair.shared,
                "differing": pair.differing,
                "example": pair.example,
                **({"on_disk": pair.on_disk} if pair.on_disk else {}),
            }
            for pair in shared
        ],
        "cuda_majors": majors,
        "unmet": unmet(host),
        "missing_files": wheel_files.missing_files(host, first),
        "glibc_needed": wheel_files.glibc_needed(host, first),
        "longest_path": wheel_files.longest_path(host, first) if host.platform == "win32" else None,
        # What a broken uninstall left.
        "leftovers": [
            f"{folder}/{name}" for folder in folders for name in host.listdir(folder) if name.startswith("~")
        ],
    }
    warnings = []
    for pair in shared:
        first_name, second_name = (
            f"{dist.name} {dist.version}".strip() for dist in (pair.first, pair.second)
        )
        message = f"{first_name} and {second_name} both installed {pair.shared} of the same files"
        if pair.differing < pair.shared:
            message += f", {pair.differing} of them with different contents"
        message += f", such as {pair.example}"
        if pair.on_disk:
            message += f", which is {pair.on_disk}'s now"
        hint = f"uninstall {pair.first.name} and {pair.second.name}, and install the one you want"
        warnings.append(Reason("file-owned-twice", message, hint))
    for dists in twice:
        # One name with two versions in one folder; across folders one only hides the other.
        versions: dict[str, list[str]] = {}
        for dist in dists:
            versions.setdefault(dist.folder, []).append(dist.version or "without a version")
        name = dists[0].name
        warnings += [
            Reason(
                "installed-twice",
                f"{folder} has metadata of {name} {' and '.join(releases)}",
                f"reinstall {name}: an upgrade left the old metadata behind",
            )
            for folder, releases in versions.items()
            if len(releases) > 1 and name not in _WITH_PROBES
        ]
    if len(majors) > 1:
        groups = []
        for major, names in majors.items():
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            groups.append(f"CUDA {major} ({', '.join(names[:2])}{more})")
        message = f"NVIDIA's packages are installed for {' and '.join(groups)}"
        hint = "keep those that your framework was built for; see its pins"
        warnings.append(Reason("cuda-majors-mixed", message, hint))
    if rows := unmet(host):
        texts = (f"{row['package']} needs {row['needs']}{row.get('wanted', '')}" for row in rows)
        count = f"{counted(len(rows), 'requirement')} {'is' if len(rows) == 1 else 'are'} not met"
        message = f"{count}: {'; '.join([*texts][:_SHOWN])}"
        warnings.append(Reason("requirement-unmet", message))
    consumers = table("libraries/consumers")["packages"]
    # The page names these too, by what they use.
    imports = tuple(
        consumers[name]["module"] for name in consumers if name in everything and name not in _WITH_PROBES
    )
    return Finding(presence=Presence.FOUND, facts=nonempty(facts), warnings=tuple(warnings), imports=imports)


def _cuda_majors(dists: list[Distribution]) -> dict[str, list[str]]:
    majors: dict[str, list[str]] = {}
    for dist in dists:
        if dist.name.startswith(_BOTH_AT_ONCE):
            continue
        named, _, major = dist.name.rpartition("-cu")
        if dist.name in _CUDA_VERSIONED:
            major = dist.version.partition(".")[0]
        elif not named.startswith("nvidia-") or len(major) != len("13"):
            continue
        # NVIDIA's placeholders have the version 0.0.0a0 or 0.0.1.
        if major.isdecimal() and int(major) > 0:
            majors.setdefault(major, []).append(dist.name)
    return {major: sorted(majors[major]) for major in sorted(majors, key=int)}
