"""Transformer Engine: NVIDIA's layers for transformers in FP8 and FP4.

Finds:    transformer-engine, its compiled part for one CUDA, its flavours for torch, JAX and Paddle.
Caveats:  nothing is imported. All its packages must be of one version, and of torch's CUDA.
Source:   Transformer Engine documentation, "Installation"; transformer_engine/common/__init__.py.
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, assigned_text, found, named, package
from mlbackends.host.python.packages import module_location
from mlbackends.host.python.requirements import same_public_version
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("transformer-engine {version}",)
FACTS = (
    *PACKAGE_FACTS,
    Fact("parts", dict[str, str], "Its other packages, with their versions."),
    Fact("cuda_major", str, "The major version of CUDA that its compiled part is for."),
    Fact("environment", dict[str, str], "The variables that steer it and are set."),
)

_PARTS = (
    "transformer-engine-cu*", "transformer-engine-torch", "transformer-engine-jax",
    "transformer-engine-paddle",
)  # fmt: skip
_CUDA = pattern(r"transformer-engine-cu(\d+)")
VARIABLES = (
    "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN", "NVTE_FUSED_ATTN_BACKEND",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NVTE_DEBUG", "NVTE_DEBUG_LEVEL", "NVTE_CUDA_INCLUDE_DIR",
    "NVTE_FRAMEWORK",
)  # fmt: skip


def find(host: Host) -> Finding:
    """Read what the packages say of themselves, and whether they go together."""
    engine = package(host, ("transformer-engine",), "transformer_engine")
    if engine is None:
        return found(host, None, "transformer-engine")
    parts = named(host, _PARTS)
    facts: dict[str, FactValue] = {}
    if parts:
        facts["parts"] = {part.name: part.version for part in reversed(parts)}
    majors = sorted({match[1] for part in parts if (match := _CUDA.fullmatch(part.name))})
    if len(majors) == 1:
        facts["cuda_major"] = majors[0]
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
    warnings += _cuda_warnings(host, majors)
    name = "transformer-engine"
    return found(host, engine, name, facts=facts, variables=VARIABLES, warnings=warnings)


def _cuda_warnings(host: Host, majors: list[str]) -> list[Reason]:
    """Return what is wrong with the CUDA of the compiled part: two of them, or not torch's."""
    if len(majors) > 1:
        message = f"transformer-engine is installed for CUDA {' and '.join(majors)}"
        return [Reason("conflict", message, "uninstall the parts for one of them")]
    torch = module_location(host, "torch")
    text = host.read(f"{torch}/version.py", 1 << 16) if torch else ""
    cuda = assigned_text(text, "cuda")
    if not majors or not cuda or cuda.partition(".")[0] == majors[0]:
        return []
    message = f"transformer-engine is for CUDA {majors[0]}, and torch is built for CUDA {cuda}"
    hint = f"install transformer-engine[core-cu{cuda.partition('.')[0]}]"
    return [Reason("conflict", message, hint)]
