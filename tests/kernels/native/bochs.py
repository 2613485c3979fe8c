"""Run the attention library on x86-64 processors that Bochs plays: AVX-512 BF16 and AMX, as compiled.

    python tests/kernels/native/bochs.py --bochs BOCHS/bochs --kernel vmlinuz [NAME]...

Each CPU must be given the levels that it and its system have, and no other. One level computes the problems
of attention_grid.cpp there, which compares what it gets with a plain computation; the results of bfloat16
are compared bit by bit with those of a library whose products other instructions compute, as in CI.

It is not part of .ci/run, for Bochs is a whole machine that has to be built:

    git clone https://github.com/bochs-emu/Bochs && cd Bochs
    git checkout 783b58fd6 && sh mend_bochs.sh     # which lies beside this file
    cd bochs && make, configured with the flags --with-nogui --enable-x86-64 --enable-avx --enable-evex
    --enable-amx --enable-all-optimizations

What is mended stands there, with why. BIOS files are taken from bios/ beside the program. The kernel is
any of Linux 6.1 or newer with drivers for nothing but a serial port, such as Debian's
linux-image-cloud-amd64. To make the disc takes xorriso, and isolinux with ldlinux.c32 (Debian: isolinux,
syslinux-common).

Ends with 0 where all is right, 1 where something is not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from grid import EMULATED_PAIRS, HERE, build, builder


class Cpu(NamedTuple):
    """The settings of Bochs, the levels that run there, and the one that computes; "" for none.

    lacks: features that the model has and this CPU has not. ignored: those that Linux is set to ignore.
    """

    name: str
    levels: tuple[str, ...]
    computes: str = ""
    model: str = "sapphire_rapids"
    lacks: str = ""
    ignored: str = ""


X86 = ("baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16")
CPUS = (
    Cpu("core2", X86[:1], "baseline", "core2_penryn_t9600"),
    Cpu("haswell", X86[:2], "avx2", "corei7_haswell_4770"),
    Cpu("skylake", X86[:3], "avx512", "corei7_skylake_x"),
    Cpu("bf16", X86[:4], "avx512_bf16", lacks="amx,amx_int8,amx_bf16"),
    Cpu("amx", X86, "amx_bf16"),
    Cpu("amx-for-bytes", X86[:4], lacks="amx_bf16"),
    Cpu("amx-alone", X86[:3], lacks="avx512bf16"),
    Cpu("amx-ignored", X86[:4], ignored="amx_tile"),
)
#: What has products of its own for bfloat16.
WITH_PAIRS = ("avx512_bf16", "amx_bf16")
#: Linux copies with these where a CPU has them, which ends in a page fault on this Bochs.
COPIES = "fsrm,fsrs,fzrm,erms"
#: This Bochs at times runs code that Linux has since patched, and Linux ends before it is up; where it is
#: quiet, it patches at other times.
TRIES = ("", "quiet")
UP, LAST_LINE, PANIC = "Linux is up", "all ended", "Kernel panic"


def entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """Return one file of an archive as Linux unpacks it. Source: cpio(5), the new ASCII format."""
    word = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(word), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + word
    return b"".join(part + b"\0" * (-len(part) % 4) for part in (head, content))


def packed(files: dict[str, bytes]) -> bytes:
    """Return an archive of programs by their absolute paths, with the console that they write to."""
    folders = {str(folder) for name in files for folder in Path(name).parents} | {"/dev"}
    parts = [entry(name.lstrip("/"), 0o40755) for name in sorted(folders - {"/"})]
    parts.append(entry("dev/console", 0o20600, device=(5, 1)))
    parts += [entry(name.lstrip("/"), 0o100755, content) for name, content in files.items()]
    return b"".join((*parts, entry("TRAILER!!!", 0)))


def needed(program: Path) -> dict[str, bytes]:
    """Return a program and every library that it loads, by their paths."""
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    names = [str(program), *re.findall(r"(?:^|=> |\s)(/\S+)(?= \()", listing)]
    return {name: Path(name).read_bytes() for name in names}


def runs_of(cpu: Cpu, programs: dict[str, Path], problems: str) -> list[list[str]]:
    """Return what is to be run: the levels, the problems, and where bits can differ, those of both builds."""
    real, emulated = str(programs["real"]), str(programs["emulated"])
    runs = [[real, "levels"]]
    if cpu.computes:
        runs.append([real, "address", problems, cpu.computes])
    if cpu.computes in WITH_PAIRS:
        runs += [[program, "bits", problems, cpu.computes] for program in (real, emulated)]
    if cpu.computes == "amx_bf16":
        runs.append([real, "cramped", problems, cpu.computes])
    return runs


def write_disc(folder: Path, arguments: argparse.Namespace, files: dict[str, bytes], words: str) -> Path:
    """Make the disc that a machine starts from, and return it. words: more of them for Linux."""
    loader, disc = folder / "disc" / "isolinux", folder / "disc.iso"
    loader.mkdir(parents=True)
    for file in (arguments.isolinux, arguments.ldlinux):
        shutil.copy(file, loader)
    shutil.copy(arguments.kernel, folder / "disc" / "vmlinuz")
    (folder / "disc" / "initrd").write_bytes(packed(files))
    line = f"initrd=/initrd console=ttyS0 panic=-1 mitigations=off nokaslr {words}"
    text = f"DEFAULT linux\nLABEL linux\nKERNEL /vmlinuz\nAPPEND {line}\n"
    (loader / "isolinux.cfg").write_text(text, encoding="utf-8")
    image = ["-b", "isolinux/isolinux.bin", "-c", "isolinux/catalogue", "-no-emul-boot"]
    load = ["-boot-load-size", "4", "-boot-info-table", str(folder / "disc")]
    command = ["xorriso", "-as", "mkisofs", "-quiet", "-o", str(disc), *image, *load]
    subprocess.run(command, check=True, capture_output=True)
    return disc


def settings(folder: Path, bochs: Path, cpu: Cpu, disc: Path) -> str:
    """Return what Bochs reads."""
    bios = bochs.parent / "bios"
    lacks = f', exclude_features="{cpu.lacks}"' if cpu.lacks else ""
    return f"""\
megs: 512
cpu: model={cpu.model}{lacks}, count=1, ips=200000000, reset_on_triple_fault=0
romimage: file={bios / "BIOS-bochs-latest"}
vgaromimage: file={bios / "VGABIOS-lgpl" / "VGABIOS-lgpl-latest.bin"}
boot: cdrom
ata0: enabled=1
ata0-master: type=cdrom, path={disc}, status=inserted
com1: enabled=1, mode=file, dev={folder / "serial"}
clock: sync=none
display_library: nogui
log: {folder / "log"}
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""


def output_of(cpu: Cpu, arguments: argparse.Namespace, files: dict[str, bytes]) -> str:
    """Return what a machine that comes up writes to its serial port until all of its runs have ended."""
    output = ""
    for words in TRIES:
        if UP not in output:
            output = started(cpu, arguments, files, words)
    return output


def started(cpu: Cpu, arguments: argparse.Namespace, files: dict[str, bytes], words: str) -> str:
    """Start a machine, and return what it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder, bochs = Path(name), arguments.bochs.resolve()
        words += f" clearcpuid={COPIES}{f',{cpu.ignored}' if cpu.ignored else ''}"
        disc, serial = write_disc(folder, arguments, files, words), folder / "serial"
        (folder / "settings").write_text(settings(folder, bochs, cpu, disc), encoding="utf-8")
        with subprocess.Popen(
            [bochs, "-q", "-f", folder / "settings"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as machine:
            latest, output = time.monotonic() + arguments.seconds, ""
            try:
                while (
                    not any(end in output for end in (LAST_LINE, PANIC))
                    and machine.poll() is None
                    and time.monotonic() < latest
                ):
                    time.sleep(1)
                    output = serial.read_bytes().decode(errors="replace") if serial.exists() else ""
            finally:
                machine.kill()
        return output.replace("\r", "")


def wrong_with(cpu: Cpu, runs: list[list[str]], output: str) -> str:
    """Return what is wrong with the output of a machine; "" where all is right."""
    parts = re.split(r"^ended: (-?\d+)\n", output.partition(f"\n{UP}\n")[2], flags=re.MULTILINE)
    texts, states = parts[:-1:2], parts[1::2]
    for run, text, state in zip(runs, texts, states, strict=False):
        if state != "0":
            return f"{' '.join(run[1:])} ended with {state}: {text.strip()[-300:]}"
    if LAST_LINE not in parts[-1] or len(texts) != len(runs):
        return f"it did not come to its end; its last output: {output[-300:].strip()}"
    given = [run[1] for run, text in zip(runs, texts, strict=True) if "with tiles" in text]
    if given != ["address"] * (cpu.computes == "amx_bf16"):
        return f"it was given tiles for {given}"
    if tuple(texts[0].split()) != cpu.levels:
        return f"it runs {texts[0].split()}, not {list(cpu.levels)}"
    bits = [text.splitlines() for run, text in zip(runs, texts, strict=True) if run[1] == "bits"]
    differing = [line[17:] for line, other in zip(*bits, strict=True) if line != other] if bits else []
    return f"{len(differing)} results differ from emulated ones: {differing}" if differing else ""


def programs(folder: Path) -> dict[str, Path]:
    """Compile the first process, and the problems with both libraries."""
    first = folder / "init"
    subprocess.run(["cc", "-O1", str(HERE / "first_process.c"), "-o", str(first)], check=True)
    made = {"init": first}
    for name, library in {"real": (), "emulated": EMULATED_PAIRS}.items():
        (folder / name).mkdir()
        made[name] = build(folder / name, builder(), library=library)
    return made


def main(words: list[str]) -> int:
    """Build, start each machine and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(": ", maxsplit=1)[0])
    names = {cpu.name: cpu for cpu in CPUS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--bochs", type=Path, required=True, help="the program; bios/ lies beside it")
    parser.add_argument("--kernel", type=Path, required=True, help="vmlinuz")
    parser.add_argument("--isolinux", type=Path, default="/usr/lib/ISOLINUX/isolinux.bin")
    modules = "/usr/lib/syslinux/modules/bios"
    parser.add_argument("--ldlinux", type=Path, default=f"{modules}/ldlinux.c32")
    parser.add_argument("--seconds", type=int, default=3600, help="that a machine may take")
    parser.add_argument("--every-problem", action="store_true", help="those that take long too")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.names) - names.keys():
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(names)}")
    found, problems = 0, "table" if arguments.every_problem else "small"
    with tempfile.TemporaryDirectory() as folder:
        made = programs(Path(folder))
        for name in arguments.names or names:
            cpu = names[name]
            runs = runs_of(cpu, made, problems)
            files = {"/runs": "".join(f"{' '.join(run)}\n" for run in runs).encode()}
            for program in made.values():
                files |= needed(program)
            files["/init"] = files.pop(str(made["init"]))
            why = wrong_with(cpu, runs, output_of(cpu, arguments, files))
            did = f"computes with {cpu.computes}" if cpu.computes else f"has {cpu.levels[-1]}"
            print(f"{name}: {why or f'{did}, right'}", flush=True)
            found |= int(bool(why))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
