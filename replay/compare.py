"""Run the tools of docs/resolve-compared.md on ten rebuilt cases, and print what each says.

    apt-get install libtree pax-utils util-linux gcc
    python3 -m venv TOOLS
    TOOLS/bin/pip install auditwheel elfdeps env-doctor cuda-doctor numpy sympy networkx
    python replay/compare.py TOOLS OUT

OUT gets the whole text of each tool, by case. Printed are each tool's exit code and the first lines that have
the cause's word. It needs Linux on x86_64, where `unshare` may make user namespaces.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from mlbackends_cli.output import write
from mlbackends_replay import cases
from mlbackends_replay.rebuild import cache_folder, rebuild, wheel_path

#: The file below site-packages that is asked for, and the wheel that it is from ("": no index has it).
FILES = {
    "onnxruntime#29500": (
        "onnxruntime/capi/onnxruntime_pybind11_state.cpython-312-x86_64-linux-gnu.so",
        "onnxruntime-gpu==1.27.0",
    ),
    "higgs-audio#177": ("torchaudio/lib/_torchaudio.abi3.so", "torchaudio==2.11.0"),
    "pccl#20": ("pccl/libpccl.so", "pypccl==1.0.0"),
    "flash-attention#2219": ("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", ""),
    "pytorch#134929": ("nvidia/cusparse/lib/libcusparse.so.12", "nvidia-cusparse-cu12==12.3.1.170"),
    "bitsandbytes#1905": ("bitsandbytes/libbitsandbytes_cuda130.so", "bitsandbytes==0.49.2"),
    "faster-whisper#1431": ("ctranslate2/_ext.cpython-311-x86_64-linux-gnu.so", "ctranslate2==4.7.1"),
    "triton#8539": ("triton/_C/libtriton.so", "triton==3.5.0"),
    "odysseus#1144": ("numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "numpy==2.4.0"),
    "onnxruntime#26996": (
        "onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so",
        "onnxruntime-gpu==1.23.2",
    ),
}
_LOADER, _FOLDER = "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu"


def prepare(name: str, tools: Path) -> tuple[cases.Case, Path, str]:
    """Rebuild a case. Return it with its root and its site-packages below that root."""
    case = cases.named(name)
    folder = Path(cache_folder(), "environments", case.name)
    for wheel in case.wheels:
        wheel_path(case, wheel)
    rebuild(case, str(folder))
    root, site = folder / "root", f"/usr/local/lib/python{case.python}/site-packages"
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text(f"{_FOLDER}\n")  # as Debian has; libtree and lddtree read it
    for program in ("libtree", "env"):
        shutil.copy(f"/usr/bin/{program}", root / program)
    (root / _LOADER[1:]).chmod(0o755)
    twice = root / str(root)[1:]  # lddtree --root puts the root before $ORIGIN's folder, which has it
    twice.parent.mkdir(parents=True, exist_ok=True)
    twice.symlink_to(root)
    if name == "flash-attention#2219":  # the stand-in has no section headers, which elfdeps reads
        symbol, torch = case.words[0], f"{root}{site}/torch/lib"
        source = f"extern int {symbol}(void); int PyInit_flash_attn_2_cuda(void) {{ return {symbol}(); }}"
        command = f"gcc -shared -nostdlib -Wl,--no-as-needed -x c - -o {root}{site}/{FILES[name][0]}"
        made = [*shlex.split(command), f"-L{torch}", "-lc10", "-lc10_cuda"]
        subprocess.run(made, input=source, text=True, check=True)
    for environment in (tools, tools / "empty"):
        place = environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
        (place / "case.pth").write_text(f"{root}{site}\n")
    return case, root, site


def commands(name: str, case: cases.Case, root: Path, site: str, tools: Path) -> dict[str, str]:
    """Return the command of each tool for a case."""
    file, wheel = f"{site}/{FILES[name][0]}", FILES[name][1]
    inside = f"unshare -r -R {root}"
    made = {
        "ldd -r": f"{inside} /env LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes {_LOADER} {file}",
        "libtree": f"{inside} /libtree {file}",
        "lddtree": f"{tools}/bin/python /usr/bin/lddtree -R {root} {file}",
        "elfdeps": f"{tools}/bin/elfdeps --symbols {root}{file}",
        "auditwheel": f"{tools}/bin/auditwheel show {wheel_path(case, wheel)}" if wheel else "",
        "pip check": f"{tools}/bin/pip --python {tools}/empty/bin/python check",
        "env-doctor": f"{tools}/bin/env-doctor check",
        "cuda-doctor": f"{tools}/bin/cuda-doctor diagnose",
    }
    where = "--root " * case.command.startswith("resolve") + str(root.parent)
    made["backends"] = f"{sys.executable} -m mlbackends {case.command.replace('SITE', site)} {where}"
    return made


def main(tools: Path, out: Path) -> None:
    """Run every tool on every case."""
    if not (tools / "empty").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", tools / "empty"], check=True)
    for name in FILES:
        case, root, site = prepare(name, tools)
        folder = out / name.replace("#", "-")
        folder.mkdir(parents=True, exist_ok=True)
        write(f"\n== {name}: {case.cause}")
        for tool, command in commands(name, case, root, site, tools).items():
            variables = {k: v.replace("SITE", site) for k, v in case.environment.items()}
            if tool not in ("ldd -r", "libtree"):
                variables = {k: f"{root}{v}" for k, v in variables.items() if k == "LD_LIBRARY_PATH"}
            variables |= {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "MLBACKENDS_REPLAY")}
            variables |= {"NO_COLOR": "1", "COLUMNS": "200", "LANG": "C.UTF-8"}
            words = shlex.split(command) or ["echo", "cannot be asked: no wheel"]
            done = subprocess.run(words, capture_output=True, text=True, env=variables, check=False)
            text = done.stdout + done.stderr
            (folder / f"{tool.replace(' ', '-')}.txt").write_text(f"$ {command}\n{text}")
            lines = text.splitlines()
            causes = [line for line in lines if any(word in line for word in case.words)]
            write(f"-- {tool}: exit {done.returncode}; {len(causes)} of {len(lines)} lines have the cause")
            write("\n".join(f"   {line.strip()[:180]}" for line in causes[:3]))
        shutil.rmtree(root.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
