"""Build flash_cpu as a kernel for Hugging Face's `kernels`.

``python kernels/hub/build.py [FOLDER]`` writes build/VARIANT, by default into dist/hub. With
CC="python -m ziglang cc -target x86_64-linux-gnu.2.17" no newer glibc than 2.17 is needed.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

ROOT, HERE = Path(__file__).resolve().parents[2], Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "kernels" / "builder"))

import compilation  # noqa: E402

NAME, VERSION = "attention-cpu", 1
#: The oldest torch whose stable ABI has what operators.cpp calls.
VARIANT = "torch-stable-abi29-cpu-{}-linux"


def build(folder: Path) -> Path:
    """Write the variant of the compiler's target, and return its folder. Raises NotCompiled."""
    compiler = compilation.find_compiler()
    target = compilation.target_of(compiler)
    if not compilation.is_elf(target) or target.libc:
        raise compilation.NotCompiled("the kernel is for Linux with glibc")
    sources = [
        file for each in (HERE, ROOT / "kernels/native/attention") for file in sorted(each.glob("*.*"))
    ]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    unique = f"{NAME.replace('-', '_')}_{digest[:8]}"  # two builds in one process are two sets of operators
    variant = folder / "build" / VARIANT.format(target.machine)
    shutil.rmtree(variant, ignore_errors=True)
    variant.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        # The library needs libtorch_cpu.so by name only: this one is empty.
        torch, operators, empty = (
            Path(scratch, name) for name in ("libtorch_cpu.so", "operators.o", "empty.c")
        )
        empty.touch()
        compilation.run([*compiler, "-shared", f"-Wl,-soname,{torch.name}", "-o", str(torch), str(empty)])
        named = [*compilation.CPP_FLAGS, f'-DMLBACKENDS_NAMESPACE="{unique}"']
        compilation.run([*compiler, *named, "-c", "-o", str(operators), str(HERE / "operators.cpp")])
        also = (str(operators), "-Wl,--no-as-needed", str(torch), "-lm")
        compilation.compile_attention(variant / f"{unique}.so", compiler, target, also=also)
    shutil.copyfile(HERE / "kernel.py", variant / "__init__.py")
    kind = {"backend": {"type": "cpu"}, "license": "Apache-2.0", "python-depends": []}
    metadata = {"id": f"_{unique}", "name": NAME, "version": VERSION, **kind}
    (variant / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", "utf-8")
    shutil.copyfile(HERE / "README.md", folder / "README.md")
    return variant


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist" / "hub"))
