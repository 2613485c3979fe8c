"""flash_cpu beside torch's flash attention on the CPU, as ratios, and its share of what the machine can do.

    PYTHONPATH=core:cli:probes:kernels PYTHON_WITH_TORCH tests/benchmarks/attention.py
        [--threads 1 2] [--rounds 9] [--only decode ...] [--backward | --program | --models]

Each round times ours and torch's in turn (A B A B), with a loop of multiply-adds before and after, or a
read of 256 MiB where memory is the limit; medians of the rounds' ratios are printed. On one thread the
clock is that thread's CPU time, for others who use the machine would else be measured too. What a row of
the goals asks for and this CPU lacks is said in its place. --backward times the gradients instead, from the
same result and logarithms. --program measures where people call it: in a torch program with torch's default
threads, on torch's tensors, each call after a linear layer of torch's; a row of a ViT's block is a step of
training. --models measures there what models need beyond a causal limit, beside torch with the same as a
mask, and beside ours without it for the scores that are left.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import platform
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import mlbackends
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import forward, gradients, library, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PEAK = r"""
#include <pthread.h>
#include <time.h>
typedef float V __attribute__((vector_size(BYTES)));
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* GFLOP/s of multiply-adds in registers, for some milliseconds. */
double multiply_adds(int milliseconds) {
    V a = {0}, b = a + 1.0001f, c = a + 1e-5f;
    V s0=a,s1=a+1,s2=a+2,s3=a+3,s4=a+4,s5=a+5,s6=a+6,s7=a+7,s8=a+8,s9=a+9;
    double start = now(), passed;
    long rounds = 0;
    do {
        for (int i = 0; i < 2000; i++) {
            s0=s0*b+c;s1=s1*b+c;s2=s2*b+c;s3=s3*b+c;s4=s4*b+c;s5=s5*b+c;s6=s6*b+c;s7=s7*b+c;s8=s8*b+c;s9=s9*b+c;
            __asm__ volatile("" : "+x"(s0), "+x"(s1));
        }
        rounds += 2000;
        passed = now() - start;
    } while (passed * 1000 < milliseconds);
    volatile float kept = (s0+s1+s2+s3+s4+s5+s6+s7+s8+s9)[0];
    (void)kept;
    return (double)rounds * 10 * 2 * (BYTES / 4) / passed / 1e9;
}
/* GB/s of reading memory once. */
double read_through(const float *memory, long count) {
    V s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    const V *at = (const V *)memory;
    double start = now();
    for (long i = 0; i + 4 <= count / (BYTES / 4); i += 4) {
        s0 += at[i]; s1 += at[i+1]; s2 += at[i+2]; s3 += at[i+3];
    }
    double passed = now() - start;
    volatile float kept = (s0+s1+s2+s3)[0];
    (void)kept;
    return (double)count * 4 / passed / 1e9;
}
"""


@dataclass(frozen=True)
class Case:
    """One row: a problem, and the ratio that it is to reach. rows: torch gets a group's heads as rows."""

    group: str
    shape: tuple[int, int, int, int, int, int]
    dtype: str
    goal: float
    causal: bool = False
    mask: str = ""
    level: str = ""
    rows: bool = False
    backward: bool = False

    @property
    def name(self) -> str:
        """What the table calls it."""
        batch, heads, key_heads, length, keys, width = self.shape
        told = f"{self.dtype} {batch}x{heads} heads, L {length}, S {keys}, E {width}"
        more = [
            f"on {key_heads}" if key_heads != heads else "",
            "causal" if self.causal else "",
            f"mask {self.mask}" if self.mask else "",
            f"our {self.level}" if self.level else "",
            "torch given rows" if self.rows else "",
            "gradients" if self.backward else "",
        ]
        return ", ".join(filter(None, [told, *more]))


def square(length: int, width: int) -> tuple[int, int, int, int, int, int]:
    """Return eight heads of as many rows as keys."""
    return 1, 8, 8, length, length, width


CASES = [
    *(Case("float32", square(n, 64), "float32", 1.25) for n in (1024, 2048)),
    *(Case("float32", square(n, 128), "float32", 1.18) for n in (1024, 2048)),
    Case("causal", square(512, 64), "float32", 2.2, causal=True),
    Case("causal", square(1024, 64), "float32", 1.6, causal=True),
    Case("causal", square(2048, 64), "float32", 1.4, causal=True),
    Case("bfloat16", square(1024, 64), "bfloat16", 2.4),
    Case("bfloat16", square(1024, 128), "bfloat16", 2.2),
    Case("bfloat16", square(1024, 64), "bfloat16", 2.6, causal=True),
    Case("float16", square(1024, 64), "float16", 2.0),
    Case("float16", square(1024, 64), "float16", 2.5, causal=True),
    Case("avx2", square(1024, 64), "float32", 1.1, level="avx2"),
    Case("decode", (1, 16, 16, 1, 16384, 128), "float32", 2.0),
    Case("decode", (1, 16, 16, 1, 32768, 128), "bfloat16", 7.0),
    Case("decode", (1, 64, 8, 1, 16384, 128), "float32", 6.0),
    Case("decode", (1, 64, 8, 1, 32768, 128), "bfloat16", 40.0),
    Case("decode", (1, 64, 8, 1, 16384, 128), "float32", 1.5, rows=True),
    Case("decode", (1, 64, 8, 1, 32768, 128), "bfloat16", 4.0, rows=True),
    *(
        Case("small", (1, 256, 256, 64, 64, 32), dtype, goal)
        for dtype, goal in (("float32", 1.8), ("bfloat16", 3.8), ("float16", 4.5))
    ),
    *(
        Case("masks", square(1024, 64), "float32", 1.25, mask=f"{kind} {shape}")
        for kind in ("bool", "float")
        for shape in ("LS", "BHLS")
    ),
]


#: Gradients of four heads.
BACKWARD = [
    Case("backward", (1, 4, 4, n, n, width), dtype, goal, causal=causal, backward=True)
    for dtype, goal in (("float32", 1.2), ("bfloat16", 2.0))
    for n in (1024, 2048)
    for width in (64, 128)
    for causal in (False, True)
]


def processor() -> str:
    """Return what the system calls this CPU."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class Machine:
    """What this machine reaches at best, from a small C program."""

    def __init__(self, folder: Path) -> None:
        bytes_of = {"baseline": 16, "neon": 16, "neon_bf16": 16, "avx2": 32, "sve256": 32}
        wide = bytes_of.get(library.usable_levels()[-1], 64)
        source, made = folder / "peak.c", folder / "peak.so"
        source.write_text(PEAK)
        flags = [
            "-O3",
            "-march=native",
            "-ffp-contract=fast",
            f"-DBYTES={wide}",
            "-shared",
            "-fPIC",
        ]
        subprocess.run(["cc", *flags, "-o", made, source], check=True)
        self._library = ctypes.CDLL(str(made))
        self._library.multiply_adds.restype = self._library.read_through.restype = ctypes.c_double
        self._memory: Any = None

    def multiply_adds(self) -> float:
        """GFLOP/s of one thread."""
        return float(self._library.multiply_adds(5))

    def read(self) -> float:
        """GB/s of one thread, from memory that no cache holds."""
        if self._memory is None:
            room = np.ones((1 << 26) + 16, "f4")
            start = -room.ctypes.data % 64 // 4
            self._memory = room[start : start + (1 << 26)]
        pointer = ctypes.c_void_p(self._memory.ctypes.data)
        return float(self._library.read_through(pointer, ctypes.c_long(1 << 26)))


def as_numpy(tensor: Any) -> Any:
    """Return a tensor's memory as an array, bfloat16 as patterns."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("uint16")
    return tensor.numpy()


def calls(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return ours and torch's way to compute a case."""
    batch, heads, key_heads, length, keys, width = case.shape
    dtype = getattr(torch, case.dtype)
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, heads, length, width), *[(batch, key_heads, keys, width)] * 2]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    mask = None
    if case.mask:
        kind, shape = case.mask.split()
        full = (length, keys) if shape == "LS" else (batch, heads, length, keys)
        numbers = torch.randn(full, generator=generator)
        mask = numbers > -1 if kind == "bool" else numbers.to(dtype)
    arrays = [as_numpy(tensor) for tensor in tensors]
    seen = None if mask is None else as_numpy(mask)
    specs = [TensorSpec(array.shape, case.dtype) for array in arrays]
    problem = AttentionProblem(
        query=specs[0],
        key=specs[1],
        value=specs[2],
        mask=None if mask is None else TensorSpec(tuple(mask.shape), str(mask.dtype)[6:]),
        is_causal=case.causal,
        enable_gqa=key_heads != heads,
    )
    grouped = key_heads != heads and not case.rows
    if case.rows:
        tensors[0] = tensors[0].reshape(batch, key_heads, heads // key_heads * length, width)

    def ours() -> Any:
        return forward.attend(problem, arrays[0], arrays[1], arrays[2], seen)[0]

    def theirs() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                *tensors, attn_mask=mask, is_causal=case.causal, enable_gqa=grouped
            )

    return ours, theirs


def backward_calls(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return ours and torch's way to compute the gradients of a case."""
    aten, generator = torch.ops.aten, torch.Generator().manual_seed(0)
    dtype, shape = getattr(torch, case.dtype), (1, case.shape[1], case.shape[3], case.shape[5])
    query, key, value, grad_out = (torch.randn(shape, generator=generator).to(dtype) for _ in range(4))
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, case.causal)
    arrays = (as_numpy(query), as_numpy(key), as_numpy(value))
    spec = TensorSpec(shape, case.dtype, requires_grad=True)
    problem = AttentionProblem(query=spec, key=spec, value=spec, is_causal=case.causal)
    of_output, result = as_numpy(grad_out), as_numpy(out)
    # torch lays its logarithms out by rows; ours would copy them in each call.
    logarithms = sums.contiguous().numpy()

    def ours() -> Any:
        return gradients.differentiate(problem, of_output, *arrays, None, result, logarithms)

    def theirs() -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, sums, 0.0, case.causal
        )

    return ours, theirs


#: In a torch program.
PROGRAM = [
    Case("float32", square(1024, 64), "float32", 1.25),
    Case("causal", square(1024, 64), "float32", 1.8, causal=True),
    Case("bfloat16", square(1024, 64), "bfloat16", 2.3),
    Case("float16", square(1024, 64), "float16", 2.1),
    Case("decode", (1, 16, 16, 1, 16384, 128), "float32", 3.5),
    Case("small", (1, 256, 256, 64, 64, 32), "float32", 1.5),
]


class Block(torch.nn.Module):  # type: ignore[misc]
    """A block of ViT-B, with an attention that is set."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        wide = 768
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(wide, dtype=dtype) for _ in range(2))
        self.inputs = torch.nn.Linear(wide, 3 * wide, dtype=dtype)
        self.outputs = torch.nn.Linear(wide, wide, dtype=dtype)
        layers = torch.nn.Linear(wide, 4 * wide, dtype=dtype), torch.nn.Linear(4 * wide, wide, dtype=dtype)
        self.rest = torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1])

    def forward(self, x: Any, attention: Callable[..., Any]) -> Any:
        """Return the block's result with this attention."""
        three = self.inputs(self.norms[0](x)).unflatten(-1, (3, 12, 64)).permute(2, 0, 3, 1, 4)
        x = x + self.outputs(attention(*three).transpose(1, 2).flatten(2))
        return x + self.rest(self.norms[1](x))


def block_calls(batch: int, dtype: str) -> list[Callable[[], Any]]:
    """Return our and torch's step of training a block on 197 tokens of some images."""
    torch.manual_seed(0)
    block, x = Block(getattr(torch, dtype)), torch.randn(batch, 197, 768, dtype=getattr(torch, dtype))

    def step(attention: Callable[..., Any]) -> None:
        block.zero_grad()
        block(x, attention).square().mean().backward()

    own, theirs = mlbackends.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    return [lambda: step(own), lambda: step(theirs)]


def program_calls(case: Case) -> list[Callable[[], Any]]:
    """Return our and torch's call of a case, on torch's tensors."""
    batch, heads, key_heads, length, keys, width = case.shape
    shapes = [(batch, heads, length, width), *[(batch, key_heads, keys, width)] * 2]
    query, key, value = [torch.randn(shape).to(getattr(torch, case.dtype)) for shape in shapes]
    own, theirs = mlbackends.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    return [
        lambda: own(query, key, value, is_causal=case.causal),
        lambda: theirs(query, key, value, is_causal=case.causal),
    ]


def in_program(name: str, goal: float, calls: list[Callable[[], Any]], rounds: int) -> str:
    """Return a row: medians of times of single calls in turn, each after a linear layer."""
    layer, x = torch.nn.Linear(512, 512), torch.randn(1024, 512)
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        pairs = list(zip(calls, times, strict=True))
        for call, seen in pairs if number % 2 else reversed(pairs):
            layer(x)
            start = time.perf_counter()
            call()
            seen.append(time.perf_counter() - start)
    ratios = [other / mine for mine, other in zip(*times, strict=True)]
    spread = statistics.quantiles(ratios, n=4)
    own, theirs = (statistics.median(seen) * 1e3 for seen in times)
    ratio = f"{spread[1]:.2f} ({spread[0]:.2f} to {spread[2]:.2f})"
    return f"| {name} | {goal} | {ratio} | {own:.2f} | {theirs:.2f} |"


def measure_program(rounds: int, only: list[str] | None) -> None:
    """Print a table of what a torch program gains."""
    print(f"{torch.get_num_threads()} threads\n")
    print("| problem | goal | torch's time / ours (quartiles) | ours, ms | torch's |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for case in PROGRAM:
        if not only or case.group in only:
            print(in_program(case.name, case.goal, program_calls(case), rounds), flush=True)
    for batch, dtype in (8, "float32"), (32, "float32"), (8, "bfloat16"):
        if not only or "block" in only:
            name = f"a ViT block's training step, {batch} images, {dtype}"
            print(in_program(name, 1.0, block_calls(batch, dtype), max(3, rounds // 2)), flush=True)


def model_calls(name: str, dtype: str) -> tuple[list[Callable[[], Any]], float]:
    """Return our call, torch's with a mask and ours in full, and the share of the scores that is left."""
    of = getattr(torch, dtype)
    heads, length, width, page = 4, 8192 if name == "window" else 2048, 64, 16
    query, key, value = (torch.randn(1, heads, length, width).to(of) for _ in range(3))
    place = torch.arange(length)
    distance = place[:, None] - place
    given: dict[str, Any] = {}
    if name == "window":
        given, mask = {"window": (1023, 0)}, (distance >= 0) & (distance < 1024)
    elif name == "alibi":
        slopes = 2.0 ** -torch.arange(1, heads + 1)
        given, mask = {"alibi_slopes": slopes}, (-slopes[:, None, None] * distance.abs()).to(of)
    elif name == "packed":
        lengths = (1024, 512, 256, 256)
        given = {"query_lengths": lengths, "key_lengths": lengths}
        number = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
        mask = number[:, None] == number
    own, theirs = mlbackends.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    if name in ("softcap", "sinks"):  # no mask does that: torch computes it as it is written
        sinks = torch.randn(heads).to(of)
        given = {"softcap": 20.0} if name == "softcap" else {"sinks": sinks}

        def written() -> Any:
            scores = query @ key.mT * width**-0.5
            if name == "softcap":
                return torch.softmax(20 * torch.tanh(scores / 20), -1) @ value
            wide = torch.cat([scores, sinks[:, None, None].expand(1, -1, length, 1)], -1)
            return torch.softmax(wide, -1)[..., :-1] @ value

        return [lambda: own(query, key, value, **given), written, lambda: own(query, key, value)], 1.0
    if name == "paged":  # a step of decoding four sequences
        table = torch.randperm(4 * length // page, dtype=torch.int32).reshape(4, -1)
        pages = [torch.randn(4 * length // page, heads, page, width).to(of) for _ in range(2)]
        token = torch.randn(4, heads, 1, width).to(of)

        def gathered() -> list[Any]:
            return [one[table].transpose(1, 2).reshape(4, heads, length, width) for one in pages]

        whole = gathered()
        return [
            lambda: own(token, *pages, page_table=table, key_lengths=(length,) * 4),
            lambda: theirs(token, *gathered()),
            lambda: own(token, whole[0], whole[1]),
        ], 1.0
    return [
        lambda: own(query, key, value, **given),
        lambda: theirs(query, key, value, attn_mask=mask),
        lambda: own(query, key, value),
    ], float((mask != 0).float().mean()) if name != "alibi" else 1.0


def measure_models(rounds: int) -> None:
    """Print a table of what models need."""
    print(f"{torch.get_num_threads()} threads\n")
    print("| problem | torch's time / ours | speed for each score, of that in full | ours, ms |")
    print("| --- | ---: | ---: | ---: |")
    for name in ("window", "softcap", "sinks", "alibi", "packed", "paged"):
        for dtype in "float32", "bfloat16":
            calls, share = model_calls(name, dtype)
            times = [[timed(call, 1, one_thread=False) for call in calls] for _ in range(rounds)]
            ratio = statistics.median(other / mine for mine, other, _ in times)
            speed = statistics.median(full * share / mine for mine, _, full in times)
            own = statistics.median(mine for mine, *_ in times) * 1e3
            print(f"| {name}, {dtype} | {ratio:.1f} | {speed:.2f} | {own:.2f} |", flush=True)


def timed(function: Callable[[], Any], repeats: int, one_thread: bool) -> float:
    """Return the seconds of one call, in the mean of some, after one that is not counted."""
    clock = time.thread_time if one_thread else time.perf_counter
    function()
    start = clock()
    for _ in range(repeats):
        function()
    passed = clock() - start
    time.sleep(0.012)  # libgomp's threads spin for 7 ms here before they sleep
    return max(passed, 1e-9) / repeats


@contextlib.contextmanager
def at_level(name: str) -> Iterator[None]:
    """Lower our instruction set, torch's stays."""
    with library.lowered(name) if name else contextlib.nullcontext():
        yield


def measure(case: Case, count: int, rounds: int, machine: Machine) -> str:
    """Return a row of the table."""
    if case.level and case.level not in library.usable_levels():
        return f"| {case.name} | {count} | {case.goal} | not here: this CPU has no {case.level} | | |"
    batch, heads, key_heads, length, keys, width = case.shape
    pairs = length * (length + 1) / 2 if case.causal else length * keys
    operations = (10 if case.backward else 4) * batch * heads * width * pairs
    moved = 2 * batch * key_heads * keys * width * (4 if case.dtype == "float32" else 2)
    ours, theirs = (backward_calls if case.backward else calls)(case)
    ratios, shares, of_torch = [], [], []
    with at_level(case.level):
        repeats = max(1, int(0.03 / max(timed(ours, 1, count == 1), 1e-6)))
        for _ in range(rounds):
            best = machine.read() if length == 1 else machine.multiply_adds()
            mine = timed(ours, repeats, count == 1)
            other = timed(theirs, repeats, count == 1)
            best = max(best, machine.read() if length == 1 else machine.multiply_adds()) * count
            work = moved if length == 1 else operations
            ratios.append(other / mine)
            shares.append(work / mine / 1e9 / best)
            of_torch.append(work / other / 1e9 / best)
    ratio, spread = statistics.median(ratios), statistics.quantiles(ratios, n=4)
    told = f"{ratio:.2f} ({spread[0]:.2f} to {spread[2]:.2f})"
    if case.dtype == "bfloat16" and "avx512_bf16" not in library.usable_levels():
        told += ", without AVX-512 BF16"
    share, other = statistics.median(shares), statistics.median(of_torch)
    return f"| {case.name} | {count} | {case.goal} | {told} | {share:.2f} | {other:.2f} |"


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--threads", type=int, nargs="*", default=[1])
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--only", nargs="*", choices=sorted({"block", *(case.group for case in CASES)}))
    which = options.add_mutually_exclusive_group()
    which.add_argument("--backward", action="store_true")
    which.add_argument("--program", action="store_true")
    which.add_argument("--models", action="store_true")
    chosen = options.parse_args()
    levels = ", ".join(library.usable_levels())
    print(f"{processor()}; {levels}; Python {platform.python_version()}, torch {torch.__version__}")
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}; medians of {chosen.rounds} rounds\n")
    if chosen.program:
        measure_program(chosen.rounds, chosen.only)
        return
    if chosen.models:
        measure_models(chosen.rounds)
        return
    print("| problem | threads | goal | torch's time / ours (quartiles) | share of peak | torch's |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        for count in chosen.threads:
            torch.set_num_threads(count)
            threads.set_num_threads(count)
            for case in BACKWARD if chosen.backward else CASES:
                if not chosen.only or case.group in chosen.only:
                    print(measure(case, count, chosen.rounds, machine), flush=True)
    print("\nThe share is of multiply-adds in float32, of reading memory for one row; of as many threads.")


if __name__ == "__main__":
    main()
