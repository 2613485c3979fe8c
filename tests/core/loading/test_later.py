"""What packages open by their own code: at import (preloads.toml), and while they run (later.toml).

The packages are stubs of the real names, their libraries a line of C each.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbackends.host.host import Host
from mlbackends.loading.later import has_driver
from mlbackends.loading.later import rows as later_rows
from mlbackends.loading.packages import resolve
from mlbackends.loading.preloads import rows
from mlbackends.model.loading import PackageLoading, Verdict

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
VERSION = ".".join(map(str, sys.version_info[:2]))


class Site:
    """A folder of packages. Libraries that are in it only to be linked with go to `gone`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gone = folder / "site-packages", folder / "gone"
        self.folder.mkdir()

    def library(self, path: str, *needed: str, module: str = "", code: str = "") -> str:
        """Compile a library whose soname is its file's name, and which needs others by their sonames."""
        linked = []
        for name in needed:
            if not (self.gone / name).exists():
                self.gone.mkdir(exist_ok=True)
                self._compile(self.gone / name, "", [])
            linked.append(str(self.gone / name))
        code += f"\nvoid *PyInit_{module}(void) {{ return 0; }}" if module else ""
        self._compile(self.folder / path, code, linked)
        return path

    def _compile(self, path: Path, code: str, linked: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        options = ["-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed"]
        command = ["cc", *options, "-o", str(path), "-xc", "-", "-xnone", *linked]
        subprocess.run(command, input=code.encode(), check=True)

    def package(self, name: str, version: str, *files: str, **texts: str) -> None:
        """Install a package of files that are there, and of modules with a text each."""
        for module, text in texts.items():
            path = self.folder / f"{module}/__init__.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            files = (*files, f"{module}/__init__.py")
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))

    def torch(self, *needed: str, version: str = "2.13.0") -> None:
        """Install a torch for CUDA 13 whose first library needs some."""
        first = self.library("torch/lib/libtorch_global_deps.so", *needed)
        extension = self.library(f"torch/_C.cpython-{VERSION.replace('.', '')}.so", module="_C")
        (self.folder / "torch/version.py").write_text("cuda: str = '13.0'\n")
        self.package("torch", version, first, extension, torch="from . import _C\n")

    def answer(self, name: str) -> PackageLoading:
        """Return what `backends resolve NAME` does."""
        [package] = resolve(self.host(), [name]).packages
        return package

    def host(self) -> Host:
        """Return this machine with an interpreter that has these packages."""
        python = {"executable": sys.executable, "version": f"{VERSION}.0", "path": [str(self.folder)]}
        return Host(python=python)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return Site(tmp_path)


def test_every_row_is_valid_and_names_its_source() -> None:
    assert len(rows()) > 30
    assert all(row.source and row.distributions for row in rows())
    assert all(row.source and row.distributions and row.costs for row in later_rows())
    # A row that is shadowed by an earlier one of the same module would never be used.
    unbounded: set[tuple[str, tuple[str, ...]]] = set()
    for row in rows():
        assert (row.module, row.distributions) not in unbounded
        if not row.versions and not row.having:
            unbounded.add((row.module, row.distributions))


def test_torch_opens_what_its_first_library_does_not_find(
    site: Site,
) -> None:
    site.torch("libcublas.so.913")
    assert site.answer("torch").faults[0].name == "libcublas.so.913"
    cublas = site.folder / site.library("libcublas.so.913")
    lists = [("cublas", ("cublasLt", "cublas")), ("cudnn", ("cudnn",)), ("cuda_runtime", ("cudart",))]
    lists += [("cuda_nvrtc", ("nvrtc", "nvrtc-builtins")), ("cuda_cupti", ("cupti",)), ("cufft", ("cufft",))]
    lists += [(name, (name,)) for name in ("curand", "cusparse", "cusolver", "nccl", "cufile")]
    lists += [("nvjitlink", ("nvJitLink",)), ("cusparselt", ("cusparseLt",)), ("nvshmem", ("nvshmem_host",))]
    for folder, names in lists:
        for name in names:
            path = site.folder / f"nvidia/{folder}/lib/lib{name}.so.913"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(cublas, path)
    assert site.answer("torch").verdict is Verdict.LOADS
    # The list ends at a file that is not there, and torch then raises.
    (site.folder / "nvidia/cufft/lib/libcufft.so.913").unlink()
    (fault, *_) = site.answer("torch").faults
    assert fault.name == "libcublas.so.913"
    assert "cufft/libcufft not found" in fault.cause


def test_torchvision_passes_over_its_library_and_fails_at_its_operators(site: Site) -> None:
    site.torch()
    file = site.library("torchvision/_C.so", "libtorch_of_another_build.so")
    site.package("torchvision", "0.28.0", file, torchvision="import torch\n")
    answer = site.answer("torchvision")
    assert (answer.verdict, answer.faults[0].name) == (Verdict.FAILS, "libtorch_of_another_build.so")
    assert "operator torchvision::nms does not exist" in answer.faults[0].cause


@pytest.mark.parametrize(("version", "ending"), [("2.8.0", ""), ("2.10.0", ""), ("2.11.0", ".abi3")])
def test_torchaudio_opens_its_libraries_in_the_order_of_its_release(
    site: Site, version: str, ending: str
) -> None:
    site.torch()
    first = site.library(f"torchaudio/lib/libtorchaudio{ending}.so")
    second = site.library(f"torchaudio/lib/_torchaudio{ending}.so", *["libtorchaudio.so"] * (not ending))
    site.package("torchaudio", version, first, second, torchaudio="import torch\n")
    assert site.answer("torchaudio").verdict is Verdict.LOADS


def test_torchcodec_is_judged_by_the_ffmpeg_that_comes_closest(site: Site) -> None:
    site.torch()
    files = [
        site.library("torchcodec/libtorchcodec_core7.so", "libavutil.so.959", "libavcodec.so.961"),
        site.library("torchcodec/libtorchcodec_core6.so"),
        site.library("torchcodec/libtorchcodec_custom_ops6.so", "libpython9.so.1.0"),
    ]
    site.package("torchcodec", "0.7.0", *files, torchcodec="import torch\n")
    assert site.answer("torchcodec").faults[0].name == "libpython9.so.1.0"
    site.library("torchcodec/libtorchcodec_custom_ops6.so")
    assert site.answer("torchcodec").verdict is Verdict.LOADS


@pytest.fixture
def onnxruntime(site: Site) -> Callable[[str], PackageLoading]:
    def answer(name: str) -> PackageLoading:
        capi, use = "onnxruntime/capi", "int use(void) { return Provider_GetHost() + cuInit(); }"
        files = [
            site.library(f"{capi}/onnxruntime_state.so", module="onnxruntime_state"),
            site.library(
                f"{capi}/libonnxruntime_providers_shared.so", code="int Provider_GetHost(void) { return 0; }"
            ),
            site.library(
                f"{capi}/libonnxruntime_providers_cuda.so",
                *("libcublas.so.13", "libcublasLt.so.13", "libcuda.so.1"),
                code=f"int Provider_GetHost(void), cuInit(void); {use}",
            ),
        ]
        (site.folder / capi / "__init__.py").write_text("from . import onnxruntime_state\n")
        site.package(name, "1.31.1", *files, onnxruntime="from onnxruntime import capi\n")
        return site.answer(name)

    return answer


def test_onnxruntime_falls_back_without_cublas(
    site: Site, onnxruntime: Callable[[str], PackageLoading], no_cublas: None
) -> None:
    answer = onnxruntime("onnxruntime-gpu")
    assert answer.verdict is Verdict.FALLS_BACK
    [fault] = answer.fallbacks
    assert (fault.code, fault.name, fault.others) == (
        "not-opened-later",
        "libcublas.so.13",
        ("libcublasLt.so.13",),
    )
    assert "computes on the CPU" in fault.cause
    assert fault.command.endswith("install 'nvidia-cublas==13.*'")
    assert fault.hint == "Once it is installed, `onnxruntime.preload_dlls()` has to come first."
    # Its own call opens them by their paths; that the driver is missing here is no fallback.
    names = ("libcublas.so.13", "libcublasLt.so.13")
    site.package("nvidia-cublas", "13.1", *(site.library(f"nvidia/cu13/lib/{name}") for name in names))
    [fault] = site.answer("onnxruntime-gpu").fallbacks
    assert fault.hint == "It works where `onnxruntime.preload_dlls()` comes first."
    assert not fault.command
    notes = site.answer("onnxruntime-gpu").notes
    assert has_driver(site.host()) is not any("No NVIDIA driver" in note for note in notes)
    assert not site.answer("nvidia-cublas").notes


@pytest.fixture
def no_cublas() -> None:
    """Skip where the system has cuBLAS, which is then found."""
    if Path("/etc/ld.so.cache").exists() and b"libcublas.so.1" in Path("/etc/ld.so.cache").read_bytes():
        pytest.skip("this system has cuBLAS")


def test_the_package_for_cpus_expects_no_cublas(onnxruntime: Callable[[str], PackageLoading]) -> None:
    assert onnxruntime("onnxruntime").verdict is Verdict.LOADS


def test_ctranslate2_expects_cublas_only_where_something_is_for_gpus(site: Site, no_cublas: None) -> None:
    library = site.library("ctranslate2.libs/libctranslate2-1.so.4.8.5")
    site.package("ctranslate2", "4.8.5", library, ctranslate2="")
    if not has_driver(site.host()):
        assert site.answer("ctranslate2").verdict is Verdict.LOADS
    site.torch()
    answer = site.answer("ctranslate2")
    assert answer.verdict is Verdict.FALLS_BACK
    assert answer.fallbacks[0].name == "libcublas.so.12"


def test_one_command_installs_all_that_a_file_lacks(site: Site) -> None:
    file = site.library("addon.so", "libcufft.so.11", "libcurand.so.10", "libcublas.so.12", module="addon")
    site.package("addon", "1.0", file)
    first, *others = site.answer("addon").faults
    if first.name != "libcufft.so.11" or len(others) != 2:
        pytest.skip("this system has CUDA 12")
    assert first.command.endswith("install nvidia-cufft-cu12 nvidia-curand-cu12 nvidia-cublas-cu12")
    assert not any(fault.command for fault in others)
    # From CUDA 13 on, most names have no suffix; curand's soname is that of CUDA 12.
    file = site.library(
        "other.so", "libcurand.so.10", "libnvrtc.so.913", "libnvJitLink.so.13", module="other"
    )
    site.package("other", "1.0", file)
    first = site.answer("other").faults[0]
    assert "nvidia-curand " in first.command + " "


def test_a_build_for_another_cuda_than_torchs_has_no_command_that_would_not_help(site: Site) -> None:
    site.torch()
    file = site.library("kernels.so", "libcudart.so.12", "libtorch_cuda.so", module="kernels")
    site.package("kernels", "1.0", file)
    fault = site.answer("kernels").faults[0]
    if fault.name != "libcudart.so.12":
        pytest.skip("this system has CUDA 12")
    assert fault.cause == "kernels is built for CUDA 12, the installed torch for CUDA 13"
    assert not fault.command


def test_a_library_of_another_package_is_named_with_its_folder(site: Site) -> None:
    site.package("addon", "1.0", site.library("addon.so", "libfield.so.7", module="addon"))
    site.package("field", "7.1", site.library("field/lib/libfield.so.7"))
    [fault] = site.answer("addon").faults
    assert "field 7.1 has it" in fault.cause
    assert fault.command.startswith(f"export LD_LIBRARY_PATH={site.folder}/field/lib")
    (site.folder / "field/lib/libfield.so.7").unlink()
    [fault] = site.answer("addon").faults
    assert fault.command.endswith("--force-reinstall --no-deps field==7.1")


def test_the_systems_installer_brings_ffmpeg(site: Site, tmp_path: Path) -> None:
    site.package(
        "addon", "1.0", site.library("addon.so", "libavutil.so.959", "libavcodec.so.961", module="addon")
    )
    first, second = site.answer("addon").faults
    assert (first.name, second.name) == ("libavutil.so.959", "libavcodec.so.961")
    assert "ffmpeg" in first.hint
    assert not second.command
    if Path("/usr/bin/apt-get").exists():
        assert first.command == "apt-get install -y ffmpeg"


@pytest.mark.parametrize(
    ("version", "built", "name", "words"),
    [
        ("cuda = '13.0'", "libbitsandbytes_cuda130.so", "libnone.so.13", "error: libnone.so.13: cannot open"),
        ("cuda = None\nhip = '7.14.60850'", "libbitsandbytes_rocm72.so", "libbitsandbytes_rocm84.so",
         "load error: Configured binary not found at /"),
    ],
)  # fmt: skip
def test_bitsandbytes_opens_the_library_that_is_named_after_torchs_toolkit(
    site: Site, version: str, built: str, name: str, words: str
) -> None:
    site.torch()
    (site.folder / "torch/version.py").write_text(f"{version}\n")
    library = site.library(f"bitsandbytes/{built}", "libnone.so.13")
    site.package("bitsandbytes", "0.49.2", library, bitsandbytes="import torch\n")

    answer = site.answer("bitsandbytes")

    assert answer.verdict is Verdict.FALLS_BACK
    assert answer.fallbacks[0].name == name
    assert words in answer.fallbacks[0].message


@pytest.mark.parametrize(("torch", "verdict"), [("2.9.1", Verdict.LOADS), ("2.7.1", Verdict.FALLS_BACK)])
def test_torchao_opens_its_kernels_beside_the_torch_of_its_table_alone(
    site: Site, torch: str, verdict: Verdict
) -> None:
    site.torch(version=torch)
    site.package("torchao", "0.15.0", torchao="import torch\n")

    answer = site.answer("torchao")

    assert answer.verdict is verdict
    assert all("incompatible torch version 2.7.1" in fault.message for fault in answer.fallbacks)


def test_a_library_of_the_system_that_a_package_without_compiled_files_opens_is_searched_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.package("sounddevice", "0.5.6", "sounddevice.py")
    (site.folder / "sounddevice.py").write_text("")
    library = site.folder / site.library("system/libportaudio.so.2")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    [answer] = resolve(site.host()).packages
    assert (answer.name, answer.verdict) == ("sounddevice", Verdict.LOADS)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    answer = site.answer("sounddevice")
    if answer.verdict is Verdict.LOADS:
        pytest.skip("this system has PortAudio")
    assert (answer.verdict, answer.faults[0].cause) == (Verdict.FAILS, "PortAudio library not found")


def test_usearch_finds_the_functions_that_numkong_makes_visible(site: Site) -> None:
    code = "int nk_dot(void); int use(void) { return nk_dot(); }"
    compiled = site.library("usearch/compiled.so", module="compiled", code=code)
    site.package("usearch", "2.26.6", compiled, usearch="from usearch import compiled\n")
    assert (site.answer("usearch").verdict, site.answer("usearch").faults[0].name) == (
        Verdict.FAILS,
        "nk_dot",
    )
    numkong = site.library("numkong/_numkong.so", module="_numkong", code="int nk_dot(void) { return 1; }")
    site.package("numkong", "7.8.6", numkong, numkong="")
    assert site.answer("usearch").verdict is Verdict.LOADS


@pytest.mark.parametrize(
    ("name", "version", "path"),
    [
        ("fbgemm-gpu", "1.5.0", "fbgemm_gpu/fbgemm_gpu_tbe_cache.so"),
        ("fbgemm-gpu-cpu", "1.9.0", "fbgemm_gpu/fbgemm_gpu_py.so"),
        ("tilelang", "0.1.15", "tilelang/lib/libtilelang.so"),
        ("torch-scatter", "2.1.2", "torch_scatter/_version_cpu.so"),
        ("decord", "0.6.0", "decord/libdecord.so"),
        ("treelite", "4.8.1", "treelite/lib/libtreelite.so"),
        ("mujoco", "4.0.0", "mujoco/plugin/libsensor.so"),
        ("z3-solver", "5.4.1", "z3/lib/libz3.so.5.4"),
    ],
)
def test_a_library_with_a_computed_name_that_lacks_another_fails(
    site: Site, name: str, version: str, path: str
) -> None:
    site.torch()
    site.package("apache-tvm-ffi", "0.1.12", tvm_ffi="")
    site.package(name, version, site.library(path, "libnone.so.913"), **{path.partition("/")[0]: ""})
    assert [fault.name for fault in site.answer(name).faults] == ["libnone.so.913"]


def test_a_package_of_rapids_has_its_library_opened_by_the_one_that_it_imports(site: Site) -> None:
    logger = site.library("rapids_logger/lib64/librapids_logger.so")
    site.package("rapids-logger", "0.3.0", logger, rapids_logger="")
    library = site.library("librmm/lib64/librmm.so", "librapids_logger.so")
    site.package("librmm-cu12", "26.10.0", library, librmm="")
    text = (
        "try:\n    import librmm\nexcept ModuleNotFoundError:\n    pass\nelse:\n    librmm.load_library()\n"
    )
    extension = site.library("rmm/_core.so", "librmm.so", module="_core")
    site.package("rmm-cu12", "26.10.0", extension, rmm=f"{text}from rmm import _core\n")
    assert (site.answer("rmm-cu12").verdict, site.answer("rmm-cu12").after) == (Verdict.LOADS, ())
    (site.folder / logger).unlink()
    assert site.answer("rmm-cu12").verdict is Verdict.FAILS


def test_a_library_that_is_opened_where_it_is_needed_first_and_is_gone(site: Site) -> None:
    """The package llvmlite can be imported without its library; llvmlite.binding, and so numba, cannot."""
    library = site.library("llvmlite/binding/libllvmlite.so")
    (site.folder / "llvmlite/binding/__init__.py").write_text("")
    site.package("llvmlite", "0.50.0", library, llvmlite="")
    site.package("numba", "0.68.1", numba="import llvmlite.binding\n")
    with (site.folder / "numba-0.68.1.dist-info/METADATA").open("a") as file:
        file.write("Requires-Dist: llvmlite\n")
    assert site.answer("numba").verdict is site.answer("llvmlite").verdict is Verdict.LOADS
    (site.folder / library).unlink()
    assert site.answer("numba").verdict is Verdict.FAILS
    answer = site.answer("llvmlite")
    assert (answer.verdict, answer.fallbacks[0].name) == (Verdict.FALLS_BACK, "libllvmlite.so")


def test_a_copy_of_a_library_that_is_mapped_already_is_not_searched_for(site: Site) -> None:
    """Importing scipy imports numpy first, whose copy of a library it then gets."""
    names = [f"{name}.libs/libgfortran-0352e75f.so.5" for name in ("numpy", "scipy")]
    for name, library in zip(("numpy", "scipy"), map(site.library, names), strict=True):
        extension = site.library(f"{name}/_core.so", module="_core")
        options = ["-shared", "-Wl,--no-as-needed", f"-Wl,-rpath,$ORIGIN/../{name}.libs"]
        command = ["cc", *options, "-o", str(site.folder / extension), "-xc", "-", "-xnone"]
        code = b"void *PyInit__core(void) { return 0; }"
        subprocess.run([*command, str(site.folder / library)], input=code, check=True)
        text = "import numpy\n" * (name == "scipy") + f"from {name} import _core\n"
        site.package(name, "1.0", extension, library, **{name: text})
    [answer] = resolve(site.host(), ["scipy"], with_files=True).packages
    needs = {need.name: need for file in answer.files for need in file.needs if "scipy" in file.path}
    found = needs["libgfortran-0352e75f.so.5"]
    assert (found.path, found.step) == (f"{site.folder}/{names[0]}", "already loaded")


def test_the_tree_has_what_a_row_opens(site: Site) -> None:
    library = site.library("wasmtime/linux-x86_64/_libwasmtime.so")
    site.package("wasmtime", "50.0.1", library, wasmtime="")
    [answer] = resolve(site.host(), ["wasmtime"], with_files=True).packages
    assert f"{site.folder}/{library}" in [file.path for file in answer.files]
    (site.folder / library).unlink()
    assert site.answer("wasmtime").verdict is Verdict.FAILS


def test_one_of_some_libraries_has_to_be_there(site: Site) -> None:
    site.torch()
    site.package("torchcodec", "0.7.0", torchcodec="import torch\n")
    assert "needs FFmpeg" in site.answer("torchcodec").faults[0].message


def test_a_search_path_as_long_as_tensorflows_is_read_whole(site: Site, no_cublas: None) -> None:
    """TensorFlow 2.21 has one of 20,000 characters."""
    site.library("far/libfar.so.9")
    library = site.library("tensorflow/libtensorflow_framework.so.2")
    folders = ":".join([*(f"$ORIGIN/{i:0200}" for i in range(100)), "$ORIGIN/far"])
    command = ["cc", "-shared", "-o", str(site.folder / "addon.so"), "-xc", "-", "-xnone"]
    options = ["-Wl,--no-as-needed", f"-Wl,-rpath,{folders}", str(site.folder / "far/libfar.so.9")]
    code = b"void *PyInit_addon(void) { return 0; }"
    subprocess.run([*command, *options], input=code, check=True)
    site.package("addon", "1.0", "addon.so")
    assert site.answer("addon").verdict is Verdict.LOADS
    # Its CUDA libraries, where torch shows that the environment is for GPUs.
    site.torch()
    site.package("tensorflow", "2.21.0", library, tensorflow="")
    names = [name for fault in site.answer("tensorflow").fallbacks for name in (fault.name, *fault.others)]
    assert {"libcublas.so.12", "libcublasLt.so.12"} <= set(names)


def test_cudnns_libraries_open_each_other_from_their_folder(site: Site) -> None:
    site.torch("libcudnn.so.9")
    names = ["", "_graph", "_ops", "_cnn", "_adv", "_engines_precompiled", "_engines_runtime_compiled"]
    folder = site.folder / "nvidia/cudnn/lib"
    folder.mkdir(parents=True)
    files = [f"libcudnn{name}.so.9" for name in (*names, "_heuristic")]
    for file in files:
        options = ["-shared", "-Wl,-rpath,$ORIGIN", f"-Wl,-soname,{file}", "-o", str(folder / file)]
        subprocess.run(["cc", *options, "-xc", "-"], input=b"int x;", check=True)
    site.package("nvidia-cudnn-cu13", "9.20", *(f"nvidia/cudnn/lib/{file}" for file in files))
    options = ["-shared", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN/../../nvidia/cudnn/lib"]
    first = str(site.folder / "torch/lib/libtorch_global_deps.so")
    command = ["cc", *options, "-o", first, "-xc", "-", "-xnone", str(folder / "libcudnn.so.9")]
    subprocess.run(command, input=b"int y;", check=True)
    assert site.answer("torch").verdict is Verdict.LOADS
    (folder / "libcudnn_heuristic.so.9").unlink()
    [fault] = site.answer("torch").fallbacks
    assert fault.name == "libcudnn_heuristic.so.9"
    assert fault.command.endswith("nvidia-cudnn-cu13==9.20")


def test_modules_that_no_import_of_the_package_reaches_are_what_its_users_import(site: Site) -> None:
    files = [site.library(f"cake/{name}.so", "libnone.so.913", module=name) for name in ("engine", "store")]
    site.package("cake", "1.0", *files, cake="")
    assert (site.answer("cake").verdict, site.answer("cake").faults[0].name) == (
        Verdict.FAILS,
        "libnone.so.913",
    )
    site.library("cake/store.so", module="store")
    assert site.answer("cake").verdict is Verdict.FALLS_BACK
    (site.folder / "cake/__init__.py").write_text("from cake import store\n")
    assert (site.answer("cake").verdict, len(site.answer("cake").parts)) == (Verdict.LOADS, 1)


def test_a_library_that_the_package_names_is_opened_without_extension_modules(site: Site) -> None:
    file = site.library("bound/libbound.so", "libnone.so.913")
    text = "import ctypes\nctypes.CDLL(__file__[:-11] + 'libbound.so')\n"
    site.package("bound", "1.0", file, bound=text)
    assert (site.answer("bound").verdict, site.answer("bound").faults[0].name) == (
        Verdict.FAILS,
        "libnone.so.913",
    )
    (site.folder / "bound/__init__.py").write_text("")
    assert site.answer("bound").verdict is Verdict.LOADS
    assert not site.answer("bound").notes
    (site.folder / "bound/__init__.py").write_text("import ctypes\nctypes.CDLL(f'{folder}/libbound.so')\n")
    [note] = site.answer("bound").notes
    assert note == "It has shared libraries that nothing here was seen to open: libbound.so."
