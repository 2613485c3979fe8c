"""NVIDIA GPUs through CUDA."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "cuda"
DEVICES = ("cuda_driver", "nvidia")
PROBES = ("nvidia", "cuda_driver", "cublas", "cusolver", "limits", "memory")

_GUIDE = "CUDA Programming Guide, appendix Compute Capabilities"
_SCALED = "PyTorch, torch._scaled_mm: its check of the device in aten/src/ATen/native/cuda"
_ATTENTION = "PyTorch 2.13, sdp_utils.cpp: its checks of the device; `backends sdpa` has them all"


def _from(capability: str) -> tuple[Need, ...]:
    return (Need("compute capability", capability),)


LIMITS = (
    Limit(
        "float16",
        Concern.DTYPE,
        "It can be stored, and every operation is computed in float32.",
        f"{_GUIDE}, half-precision operations; PTX ISA, fma: sm_53 for f16",
        _from("5.3"),
        emulated=True,
    ),
    Limit(
        "bfloat16",
        Concern.DTYPE,
        "It can be stored, and is emulated: torch.cuda.is_bf16_supported(including_emulation=False)"
        " is false.",
        f"{_GUIDE}; PTX ISA, fma: sm_80 for bf16; PyTorch, torch.cuda.is_bf16_supported",
        _from("8.0"),
        emulated=True,
    ),
    Limit(
        "float8_e4m3fn",
        Concern.DTYPE,
        "It can be stored, and torch._scaled_mm refuses to multiply it.",
        _SCALED,
        _from("8.9"),
    ),
    Limit(
        "float8_e5m2",
        Concern.DTYPE,
        "It can be stored, and torch._scaled_mm refuses to multiply it.",
        _SCALED,
        _from("8.9"),
    ),
    Limit(
        "float4_e2m1fn_x2",
        Concern.DTYPE,
        "Tensor cores do not take it, so there are no products of MXFP4 and NVFP4.",
        "cuBLAS documentation, narrow precision data types and block scaling: capability 10.0",
        _from("10.0"),
    ),
    Limit(
        "matrix products on tensor cores",
        Concern.OPERATION,
        "float16 is multiplied by the ordinary units.",
        f"{_GUIDE}, tensor cores",
        _from("7.0"),
    ),
    Limit(
        "TF32 in products of float32",
        Concern.OPERATION,
        "allow_tf32 and fp32_precision change nothing.",
        f"{_GUIDE}, tensor core data types; PyTorch, torch.cuda.is_tf32_supported",
        _from("8.0"),
    ),
    Limit(
        "flash attention of torch",
        Concern.OPERATION,
        "scaled_dot_product_attention takes another backend.",
        _ATTENTION,
        _from("8.0"),
    ),
    Limit(
        "cuDNN attention of torch",
        Concern.OPERATION,
        "scaled_dot_product_attention takes another backend.",
        _ATTENTION,
        _from("8.0"),
    ),
    Limit(
        "torch.compile with Triton",
        Concern.OPERATION,
        "Inductor raises GPUTooOldForTriton.",
        "PyTorch 2.13, torch/_inductor/exc.py, GPUTooOldForTriton",
        _from("7.0"),
    ),
    Limit(
        "asynchronous copies into shared memory",
        Concern.OPERATION,
        "Copies go through registers.",
        f"{_GUIDE}, asynchronous data copies with hardware acceleration",
        _from("8.0"),
    ),
    Limit(
        "thread block clusters and the tensor memory accelerator",
        Concern.OPERATION,
        "Kernels that are written for Hopper do not start.",
        f"{_GUIDE}, thread block cluster, distributed shared memory, tensor memory accelerator",
        _from("9.0"),
    ),
)


def _attribute(word: str) -> Need:
    return Need("CUDA attribute", one_of=(word,))


def _source(number: int, name: str) -> str:
    return f"CUDA Driver API, CU_DEVICE_ATTRIBUTE_{name} ({number})"


FEATURES = (
    Feature(
        "stream-ordered allocation",
        "cudaMallocAsync and memory pools: memory is given and taken back in a stream's order.",
        _source(115, "MEMORY_POOLS_SUPPORTED") + "; CUDA 11.2 release notes",
        (Need("CUDA driver", "11.2"), _attribute("memory-pools")),
    ),
    Feature(
        "allocator backend:cudaMallocAsync of torch",
        "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync takes the driver's pools for torch's own.",
        "PyTorch, CUDA semantics, memory management: CUDA 11.4",
        (Need("CUDA driver", "11.4"), _attribute("memory-pools")),
    ),
    Feature(
        "expandable segments",
        "Virtual memory management, on which PYTORCH_ALLOC_CONF=expandable_segments:True stands.",
        _source(102, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED") + "; CUDA 10.2 release notes",
        (Need("CUDA driver", "10.2"), _attribute("virtual-memory-management")),
    ),
    Feature(
        "graph capture",
        "What a stream is given can be captured and started again as one: torch.cuda.graph.",
        "CUDA 10.0 release notes, CUDA graphs",
        (Need("CUDA driver", "10.0"),),
    ),
    Feature(
        "allocation in graphs",
        "Graphs can have nodes that allocate memory and free it.",
        "CUDA Programming Guide, graph memory nodes: driver 11.4 and memory pools",
        (Need("CUDA driver", "11.4"), _attribute("memory-pools")),
    ),
    Feature(
        "unified memory",
        "cudaMallocManaged: one pointer, and pages move between host and device.",
        _source(83, "MANAGED_MEMORY"),
        (_attribute("managed-memory"),),
    ),
    Feature(
        "unified memory used by both at once",
        "Host and device can touch managed memory at the same time.",
        _source(89, "CONCURRENT_MANAGED_ACCESS"),
        (_attribute("concurrent-managed-access"),),
    ),
    Feature(
        "memory of malloc",
        "The device reads what malloc gave, without registration (HMM or ATS).",
        _source(88, "PAGEABLE_MEMORY_ACCESS"),
        (_attribute("pageable-memory-access"),),
    ),
    Feature(
        "pinned memory in the device's addresses",
        "cudaHostAlloc gives host memory that kernels can read.",
        _source(19, "CAN_MAP_HOST_MEMORY"),
        (_attribute("host-memory-mapping"),),
    ),
    Feature(
        "pinning memory that is there",
        "cudaHostRegister locks memory that was allocated before.",
        _source(99, "HOST_REGISTER_SUPPORTED"),
        (_attribute("host-registration"),),
    ),
    Feature(
        "pinned memory under one address",
        "Registered memory has the same address on host and device.",
        _source(91, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM"),
        (_attribute("host-pointer-for-registered-memory"),),
    ),
    Feature(
        "GPUDirect RDMA",
        "Network cards and disks can reach the device's memory by themselves.",
        _source(116, "GPU_DIRECT_RDMA_SUPPORTED"),
        (_attribute("gpudirect-rdma"),),
    ),
    Feature(
        "sharing memory by dma-buf",
        "Memory of the device can be handed to another driver as a file.",
        _source(124, "DMA_BUF_SUPPORTED"),
        (_attribute("dma-buf"),),
    ),
    Feature(
        "sharing memory between nodes",
        "Fabric handles: memory of GPUs that NVLink joins across machines.",
        _source(128, "HANDLE_TYPE_FABRIC_SUPPORTED"),
        (_attribute("fabric-handles"),),
    ),
    Feature(
        "multicast",
        "NVSwitch adds up and spreads what several GPUs write.",
        _source(132, "MULTICAST_SUPPORTED"),
        (_attribute("multicast"),),
    ),
    Feature(
        "compute preemption",
        "Long kernels make room for others, and debuggers can stop them.",
        _source(90, "COMPUTE_PREEMPTION_SUPPORTED"),
        (_attribute("compute-preemption"),),
    ),
    Feature(
        "cooperative launch",
        "All blocks of a kernel can wait for each other.",
        _source(95, "COOPERATIVE_LAUNCH"),
        (_attribute("cooperative-launch"),),
    ),
    Feature(
        "cluster launch",
        "Blocks can be started as clusters that share memory.",
        _source(120, "CLUSTER_LAUNCH"),
        (_attribute("cluster-launch"),),
    ),
)

SHOWN = (
    Shown("driver", "nvidia.driver_release"),
    Shown("CUDA of the driver", "cuda_driver.version"),
    Shown("BLAS", "cublas.libraries"),
    Shown("LAPACK", "cusolver.libraries"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
    Shown("it may lock any amount", "memory.locked_memory_unlimited"),
)
