"""CUTLASS: NVIDIA's Python languages for GPU kernels (CuTe DSL, cuda-tile).

Finds:    nvidia-cutlass-dsl and the libraries it is made of, nvidia-cutlass, cuda-tile.
Caveats:  the extra cu13 of the DSL installs its libraries for CUDA 12 as well: that is not a conflict.
Source:   CUTLASS documentation, "CuTe DSL quick start"; cuda-tile documentation; their Requires-Dist.
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import found_set, named, package
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"
SUMMARY = ("{packages}",)


def find(host: Host) -> Finding:
    """Read the packages' metadata."""
    libraries = {dist.name: dist.version for dist in named(host, ("nvidia-cutlass-dsl-libs-*",))}
    packages = (
        package(host, ("nvidia-cutlass-dsl",), "nvidia_cutlass_dsl/python_packages/cutlass"),
        package(host, ("nvidia-cutlass",), "cutlass_library"),
        package(host, ("cuda-tile",), "cuda/tile"),
    )
    looked_for = "nvidia-cutlass-dsl, nvidia-cutlass or cuda-tile"
    facts = nonempty({"dsl_libraries": libraries})
    return found_set(host, packages, looked_for, "cutlass", facts)
