"""Transformer Engine: NVIDIA's layers for transformers in FP8 and FP4.

Finds:    transformer-engine, its compiled part for one CUDA, its flavours for torch, JAX and Paddle.
Caveats:  all its packages must be of one version, and of torch's CUDA.
Source:   Transformer Engine documentation, "Installation"; transformer_engine/common/__init__.py.
"""

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    assigned_text,
    found,
    named,
    package,
    torch_version_file,
)
from mlbackends.host.python.requirements import same_public_version
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"

_PARTS = (
    "transformer-engine-cu*", "transformer-engine-torch", "transformer-engine-jax",
    "transformer-engine-paddle",
)  # fmt: skip
_CUDA = pattern(r"transformer-engine-cu(\d+)")


def find(host: Host) -> Finding:
    """Read the packages' metadata, and check that they match."""
    engine = package(host, ("transformer-engine",), "transformer_engine")
    if engine is None:
        return found(host, None, "transformer-engine")
    parts = named(host, _PARTS)
    majors = sorted({match[1] for part in parts if (match := _CUDA.fullmatch(part.name))})
    facts = {
        "parts": {part.name: part.version for part in reversed(parts)},
        "cuda_major": majors[0] if len(majors) == 1 else "",
    }
    version = engine.metadata_version
    warnings = [
        Reason(
            "conflict",
            f"transformer-engine is {version}, and {part.name} is {part.version}",
            f"install {part.name}=={version}",
        )
        for part in parts
        if version and not same_public_version(part.version, version)
    ]
    cuda = assigned_text(torch_version_file(host), "cuda")
    of_torch = cuda.partition(".")[0]
    if len(majors) > 1:
        message = f"transformer-engine is installed for CUDA {' and '.join(majors)}"
        warnings.append(Reason("conflict", message, "uninstall the parts for one of them"))
    elif majors and cuda and of_torch != majors[0]:
        message = f"transformer-engine is for CUDA {majors[0]}, and torch is built for CUDA {cuda}"
        hint = f"install transformer-engine[core-cu{of_torch}]"
        warnings.append(Reason("conflict", message, hint))
    return found(host, engine, "transformer_engine", nonempty(facts), warnings)
