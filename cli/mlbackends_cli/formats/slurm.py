"""The features of a Slurm node, as its Feature= takes them: `srun --constraint=avx512`.

avx512,zen_4,kernel_6.8.0_60_generic,libc_2.39,nvidia_580.95.05,cuda_13.0,8x_nvidia_h100_80gb_hbm3,fp_1_9a..
"""

from mlbackends.model.records import Report
from mlbackends_cli.report.checks import features
from mlbackends_cli.terminal import Page

#: Prefixes of values that are not clear by themselves.
_BEFORE = {
    "host.kernel_release": "kernel_",
    "host.libc_version": "libc_",
    "nvidia.driver_release": "nvidia_",
    "nvidia.cuda_version": "cuda_",
    "rocm.driver_version": "amdgpu_",
    "rocm.runtime_version": "rocm_",
    "fingerprint": "fp_",
}


def report(report: Report, _page: Page) -> str:
    """Return the features, with commas between them."""
    found = features(report)
    words = []
    for name, value in found.items():
        count = found.get(name.removesuffix(".name"), "")
        if name.endswith(".devices.name"):
            words += [value, f"{count}x_{value}"]
        elif not name.endswith(".devices"):
            words.append(_BEFORE.get(name, "") + value)
    return ",".join(text.lower().replace("-", "_") for text in words)
