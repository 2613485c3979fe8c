"""The preloaded shim, under small C programs that print as oneDNN and MKL do."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from mlbackends.libraries.elf import read_elf

if sys.platform != "linux":
    pytest.skip("the shim is Linux's", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
BUILDER = ROOT / "kernels" / "builder"
STAMPED = re.compile(rb"\[pid (\d+) tid (\d+) end (\d+)\] (.*)\n")
LINE = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,,,,,8:8,0.5"


class Stamped(NamedTuple):
    process: int
    thread: int
    end_ns: int
    line: str


class Done(NamedTuple):
    stdout: bytes
    stderr: str
    code: int
    trace: list[Stamped]
    counts: tuple[int, ...]


class Bench:
    """Compiles programs, and runs each under the shim."""

    def __init__(self, shim: str, folder: Path) -> None:
        self.shim = shim
        self.folder = folder
        self.trace = folder / "trace.log"
        self.counts = folder / "counts"
        self.counts.write_bytes(bytes(4096))

    def compiled(self, body: str, *flags: str) -> Path:
        source = self.folder / "program.c"
        heads = "errno fcntl pthread sched stdarg stdio stdlib string unistd sys/resource sys/wait"
        includes = "".join(f"#include <{head}.h>\n" for head in heads.split())
        program = self.folder / "program"
        source.write_text(f'#define _GNU_SOURCE\n{includes}#define LINE "{LINE}"\n{body}')
        command: list[str | Path] = ["cc", "-O2", "-pthread", *flags, "-o", program, source]
        subprocess.run(command, check=True)
        return program

    def run(self, body: str, *flags: str, **variables: str) -> Done:
        program = self.compiled(body, *flags)
        settings = {
            "LD_PRELOAD": self.shim,
            "MLBACKENDS_TRACE_FILE": str(self.trace),
            "MLBACKENDS_TRACE_MARKERS": "onednn_verbose,\nMKL_VERBOSE ",
            "MLBACKENDS_TRACE_COUNTS": str(self.counts),
        }
        environment = {**os.environ, **settings, **variables}
        done = subprocess.run([program], cwd=self.folder, env=environment, capture_output=True, check=False)
        counts = struct.unpack_from("=5Q", self.counts.read_bytes())
        return Done(done.stdout, done.stderr.decode(), done.returncode, self.read(), counts)

    def read(self, path: Path | None = None) -> list[Stamped]:
        path = path or self.trace
        text = path.read_bytes() if path.exists() else b""
        found = STAMPED.findall(text)
        return [Stamped(int(p), int(t), int(n), line.decode()) for p, t, n, line in found]


@pytest.fixture
def bench(shim: str, tmp_path: Path) -> Bench:
    return Bench(shim, tmp_path)


def lines(done: Done) -> list[str]:
    return [call.line for call in done.trace]


WAYS = {
    "printf": r'printf(LINE "\n");',
    "a format": r'printf("onednn_verbose%s,%s%g\n", ",v1", "primitive,exec,cpu,matmul,brg,,,,,8:8,", .5);',
    "a line as argument": r'printf("%s", LINE "\n");',
    "a line and its end": r'printf("%s\n", LINE);',
    "puts": r"puts(LINE);",
    "fputs": r'fputs(LINE "\n", stdout);',
    "fwrite": r'fwrite(LINE "\n", 1, sizeof LINE, stdout);',
    "fprintf": r'fprintf(stdout, "%s\n", LINE);',
    "vprintf": r'through(vprintf, "%s\n", LINE);',
}
THROUGH = """
static int through(int (*print)(const char *, va_list), const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = print(format, arguments);
    va_end(arguments);
    return length;
}
"""


@pytest.mark.parametrize("flags", [(), ("-D_FORTIFY_SOURCE=2",), ("-fno-builtin",)], ids=str)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_line_goes_to_the_trace_however_it_is_printed(
    bench: Bench, way: str, flags: tuple[str, ...]
) -> None:
    done = bench.run(
        f'{THROUGH} int main(void) {{ (void)through; printf("before "); {way} puts("after"); }}',
        *flags,
    )
    assert done.stdout == b"before after\n"
    assert lines(done) == [LINE]
    assert done.counts == (1, 0, 0, 1, 0)


TEXTS = {
    "text": r'printf("%d and %s\n", 3, "onednn_verbose,");',
    "a marker within": r'puts("see onednn_verbose,v1");',
    "the start of a marker": r'printf("onednn\n"); printf("%s", "onednn_verb");',
    "no line's end": r'printf("onednn_verbose,v1");',
    "a question": r'printf("onednn_verbose, on or off? "); puts("on");',
    "pieces and more": r'printf("onednn_verbose,v1,"); fputs("info,x\nresult 3\n", stdout);',
    "lines of both kinds": r'fputs(LINE "\nresult 3\n", stdout);',
    "nothing": r'printf("%s", ""); fwrite(0, 0, 0, stdout); fputs("", stdout);',
    "numbers": r'printf("%5.2f|%-8s|%*d\n", 1.5, "x", 6, 42);',
    "a null pointer": r'char *volatile none = 0; printf("%s%s", none, "\n");',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_other_text_is_printed_as_without_the_shim(bench: Bench, text: str) -> None:
    body = f"int main(void) {{ {text} }}"
    done = bench.run(body, "-w")
    bare = subprocess.run([bench.folder / "program"], capture_output=True, check=True)
    assert done.stdout == bare.stdout
    assert not done.trace


TEMPLATE = "onednn_verbose,info,prim_template:timestamp,operation,exec_time"
ENDS = {
    "printf": r'printf("%stimestamp,operation,exec_time\n", "");',
    "two printf": r'printf("time%s", "stamp"); printf(",operation,%s_time\n", "exec");',
    "puts": r'puts("timestamp,operation,exec_time");',
    "an empty puts": r'fputs("timestamp,operation,exec_time", stdout); puts("");',
    "fputs": r'fputs("timestamp,operation,exec_time\n", stdout);',
    "fputs_unlocked": r'fputs_unlocked("timestamp,operation,exec_time\n", stdout);',
    "fwrite": r'fwrite("timestamp,operation,exec_time\n", 30, 1, stdout);',
    "fwrite_unlocked": r'fwrite_unlocked("timestamp,operation,exec_time\n", 1, 30, stdout);',
    "fprintf": r'fprintf(stdout, "%s\n", "timestamp,operation,exec_time");',
    "vprintf": r'through(vprintf, "%s\n", "timestamp,operation,exec_time");',
    "putchar": r'for (char *at = "timestamp,operation,exec_time\n"; *at; ++at) putchar(*at);',
    "putc": r'for (char *at = "timestamp,operation,exec_time\n"; *at; ++at) putc(*at, stdout);',
    "fputc": r'for (char *at = "timestamp,operation,exec_time\n"; *at; ++at) fputc(*at, stdout);',
    "putc_unlocked": (
        r'for (char *at = "timestamp,operation,exec_time\n"; *at; ++at) putc_unlocked(*at, stdout);'
    ),
    "an argument": r'printf("%c", 0x74); printf("%s", "imestamp,operation,exec_time\n");',
}


@pytest.mark.parametrize("flags", [(), ("-D_FORTIFY_SOURCE=2",), ("-fno-builtin",)], ids=str)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_line_in_pieces_is_one(bench: Bench, end: str, flags: tuple[str, ...]) -> None:
    done = bench.run(
        f"""{THROUGH} int main(void) {{
            (void)through; setvbuf(stdout, 0, _IOLBF, 0); printf("before ");
            printf("onednn_verbose,info,prim_template:"); {end} puts(LINE); puts("after");
        }}""",
        *flags,
    )
    assert done.stdout == b"before after\n"
    assert lines(done) == [TEMPLATE, LINE]
    assert done.counts == (2, 0, 0, 1, 0)


def test_pieces_of_threads_and_processes_do_not_mix(bench: Bench) -> None:
    done = bench.run(
        r"""
        static void *work(void *name) {
            for (int line = 0; line < 300; ++line) {
                printf("onednn_verbose,%d,", getpid());
                if (line % 2) sched_yield();
                printf("%ld,", (long)name); printf("%d", line); putchar('\n');
            }
            return name;
        }
        int main(void) {
            fork(); fork();
            pthread_t threads[4];
            for (long each = 0; each < 4; ++each) pthread_create(&threads[each], 0, work, (void *)each);
            for (int each = 0; each < 4; ++each) pthread_join(threads[each], 0);
            while (wait(0) > 0) {}
        }"""
    )
    processes = {call.process for call in done.trace}
    wanted = {
        f"onednn_verbose,{process},{thread},{line}"
        for process in processes
        for thread in range(4)
        for line in range(300)
    }
    assert len(processes) == 4
    assert len(done.trace) == 4800
    assert set(lines(done)) == wanted
    assert done.stdout == b""


def test_nothing_is_lost_where_threads_print_both_pieces_and_text(bench: Bench) -> None:
    done = bench.run(
        r"""
        static void *work(void *name) {
            for (int line = 0; line < 500; ++line)
                if (name) { printf("onednn_verbose,%d,", line); printf("x%d\n", line); }
                else printf("text %d\n", line);
            return name;
        }
        int main(void) {
            pthread_t threads[4];
            for (long each = 0; each < 4; ++each) pthread_create(&threads[each], 0, work, (void *)each);
            for (int each = 0; each < 4; ++each) pthread_join(threads[each], 0);
        }"""
    )
    # A line that the text of another thread broke is in the output as it came, in two places.
    everything = (done.stdout.decode() + "".join(lines(done))).replace("\n", "")
    for line in range(500):
        assert len(re.findall(f"onednn_verbose,{line},", everything)) == 3
        assert len(re.findall(rf"x{line}(?!\d)", everything)) == 3
        assert len(re.findall(rf"text {line}(?!\d)", everything)) == 1
    assert all(re.fullmatch(r"onednn_verbose,(\d+),x\1", line) for line in lines(done))


def test_a_piece_that_text_intervenes_on_is_printed_as_it_came(bench: Bench) -> None:
    done = bench.run(
        r"""
        static void *work(void *text) { fputs(text, stdout); return text; }
        static void other(char *text) {
            pthread_t thread;
            pthread_create(&thread, 0, work, text); pthread_join(thread, 0);
        }
        int main(void) {
            printf("onednn_verbose,a"); other("text\n"); printf("b\n");
            printf("onednn_verbose,c"); other("onednn_verbose,d\n"); printf("e\n");
            other("onednn_verbose,f"); puts("g");
            printf("onednn_verbose,h"); printf("onednn_verbose,i\n"); puts("");
            printf("onednn_verbose,j"); fflush(stdout); puts("k");
            printf("onednn_verbose,l"); fflush(0); puts("m");
            printf("onednn_verbose,n\nonednn_verbose,o"); printf("p\nonednn_verbose,q"); puts("r");
            other("onednn_verbose,s");
        }"""
    )
    assert done.stdout.decode() == (
        "onednn_verbose,atext\nb\nonednn_verbose,fg\nonednn_verbose,h\n"
        "onednn_verbose,jk\nonednn_verbose,lm\nonednn_verbose,s"
    )
    wanted = ["d", "ce", "i", "n", "op", "qr"]
    assert lines(done) == [f"onednn_verbose,{letters}" for letters in wanted]


@pytest.mark.parametrize("before", ["", r'fputs("before\n", stdout);'], ids=["first", "later"])
@pytest.mark.parametrize("behind", ["", "fflush(stdout);", 'puts("behind");'])
def test_a_line_that_ends_by_putc_unlocked_is_one(bench: Bench, before: str, behind: str) -> None:
    body = f"int main(void) {{ {before} fputs(LINE, stdout); putc_unlocked('\\n', stdout); {behind} }}"
    done = bench.run(body)
    assert done.stdout == b"before\n" * bool(before) + b"behind\n" * ("behind" in behind)
    assert lines(done) == [LINE]


def test_what_putc_unlocked_puts_between_stays_in_order(bench: Bench) -> None:
    body = r"""int main(void) {
        fputs("before\nonednn_verbose,a", stdout);
        fputs("\nonednn_verbose,b", stdout); putc_unlocked(' ', stdout); putc_unlocked('x', stdout);
        puts(" end");
        printf("onednn_verbose,c,"); putc_unlocked('\n', stdout); putc_unlocked('y', stdout);
        printf("onednn_verbose,d,"); for (int each = 0; each < 9000; ++each) putc_unlocked('z', stdout);
    }"""
    done = bench.run(body)
    text = b"before\nonednn_verbose,a\nonednn_verbose,b x end\nonednn_verbose,c,\nyonednn_verbose,d,"
    assert done.stdout == text + b"z" * 9000
    assert lines(done) == []


def test_a_piece_goes_where_the_output_went_when_it_was_printed(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            printf("onednn_verbose,a");
            if (!freopen("own.txt", "w", stdout)) return 1;
            printf("onednn_verbose,b"); fclose(stdout);
        }"""
    )
    assert done.stdout == b"onednn_verbose,a"
    assert (bench.folder / "own.txt").read_bytes() == b"onednn_verbose,b"


def test_a_piece_without_end_is_printed_once_too_long(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            printf("onednn_verbose,");
            for (int each = 0; each < 3000000; ++each) putchar('x');
            puts("");
            puts(LINE);
        }"""
    )
    assert done.stdout == b"onednn_verbose," + b"x" * 3000000 + b"\n"
    assert lines(done) == [LINE]


def test_a_fork_amid_a_line_ends_it_twice(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            printf("onednn_verbose,a,");
            pid_t child = fork();
            if (child) wait(0);
            printf("%s\n", child ? "parent" : "child");
        }"""
    )
    assert lines(done) == ["onednn_verbose,a,child", "onednn_verbose,a,parent"]
    assert done.stdout == b""


def test_pieces_that_are_printed_at_exit_arrive(bench: Bench) -> None:
    done = bench.run(
        r"""
        static void last(void) { printf("onednn_verbose,"); puts("a"); printf("onednn_verbose,"); }
        __attribute__((destructor)) static void very_last(void) { puts("b"); puts(LINE); }
        int main(void) { atexit(last); }"""
    )
    assert lines(done) == ["onednn_verbose,a", "onednn_verbose,b", LINE]


def test_what_a_continued_line_returns_is_as_printf_has_it(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            errno = 77;
            int first = printf("onednn_verbose,%d", 3), second = printf("%s", "abcd");
            int third = (int)fwrite("xy", 2, 1, stdout), fourth = putchar(195) + putchar(169);
            int fifth = printf("%s", ""), sixth = puts("") >= 0, seventh = errno;
            fprintf(stderr, "%d %d %d %d %d %d %d", first, second, third, fourth, fifth, sixth, seventh);
        }""",
        "-fno-builtin",
    )
    assert done.stderr == "16 4 1 364 0 1 77"
    assert lines(done) == ["onednn_verbose,3abcdxy\N{LATIN SMALL LETTER E WITH ACUTE}"]


def test_stderr_and_files_are_none_of_its_business(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            FILE *file = fopen("/dev/stderr", "w");
            fprintf(stderr, "%s\n", LINE); fputs(LINE "\n", file); fclose(file);
        }"""
    )
    assert done.stderr.splitlines() == [LINE, LINE]
    assert not done.trace


def test_a_program_starts_with_errno_0_though_the_capture_is_over(bench: Bench) -> None:
    body = 'int main(void) { fprintf(stderr, "%d", errno); }'
    assert bench.run(body, MLBACKENDS_TRACE_COUNTS="/no/such").stderr == "0"


def test_a_stamp_has_process_thread_and_time(bench: Bench) -> None:
    before = time.time_ns()
    done = bench.run(
        r"""
        static void *work(void *name) { puts(LINE); return name; }
        int main(void) {
            pthread_t thread;
            puts(LINE);
            pthread_create(&thread, 0, work, 0); pthread_join(thread, 0);
            fprintf(stderr, "%d", getpid());
        }"""
    )
    first, second = done.trace
    assert first.process == second.process == first.thread == int(done.stderr)
    assert second.thread != first.thread
    assert before <= first.end_ns <= second.end_ns <= time.time_ns()


def test_a_long_line_arrives_whole(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            static char text[100000];
            memset(text, 'x', sizeof text - 1);
            memcpy(text, "onednn_verbose,", 15);
            printf("%s\n", text); puts(text);
        }"""
    )
    assert lines(done) == ["onednn_verbose," + "x" * 99984] * 2


def test_a_program_may_close_all_descriptors_and_reuse_ours(bench: Bench) -> None:
    own = bench.folder / "own.txt"
    done = bench.run(
        r"""int main(void) {
            puts(LINE);
            for (int each = 3; each < 1024; ++each) close(each);
            int own = open("own.txt", O_WRONLY | O_CREAT, 0600);
            for (int each = 3; each < 1024; ++each) if (each != own) dup2(own, each);
            puts(LINE);
            if (write(own, "mine", 4) != 4) return 1;
        }"""
    )
    assert own.read_bytes() == b"mine"
    # With every number taken there is none left for the trace: the line is printed as ever.
    assert len(done.trace) + done.stdout.count(LINE.encode()) == 2


def test_a_daemon_that_closed_everything_is_traced_on(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            puts(LINE);
            if (fork()) { wait(0); return 0; }
            for (int each = 3; each < 1024; ++each) close(each);
            puts(LINE);
        }"""
    )
    assert lines(done) == [LINE, LINE]
    assert done.stdout == b""


def test_a_program_that_is_killed_leaves_what_it_printed(bench: Bench) -> None:
    done = bench.run("int main(void) { puts(LINE); puts(LINE); kill(getpid(), 9); }", "-include", "signal.h")
    assert done.code == -9
    assert lines(done) == [LINE, LINE]
    assert done.counts[0] == 2


def test_a_limit_on_file_sizes_ends_the_trace_and_not_the_program(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            struct rlimit limit = {1000, 1000};
            setrlimit(RLIMIT_FSIZE, &limit);
            for (int each = 0; each < 50; ++each) puts(LINE);
            puts("done");
        }"""
    )
    assert done.code == 0
    assert done.stdout == b"done\n"
    written, lost, reason, _, _ = done.counts
    assert written == len(done.trace)
    assert written + lost == 50
    assert lost > 0
    assert os.strerror(reason) == "File too large"


def test_a_trace_that_cannot_be_opened_leaves_the_line_where_it_was(bench: Bench) -> None:
    done = bench.run(
        "int main(void) { puts(LINE); }", MLBACKENDS_TRACE_FILE=str(bench.folder / "no" / "trace")
    )
    assert done.stdout.decode() == f"{LINE}\n"
    assert done.counts == (0, 0, 0, 0, 1)


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_regular_file_is_not_written(bench: Bench, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(bench.folder / "other")
    else:
        (bench.folder / "other").mkdir()
    done = bench.run("int main(void) { puts(LINE); }", MLBACKENDS_TRACE_FILE=str(bench.folder / "other"))
    assert done.stdout.decode() == f"{LINE}\n"


@pytest.mark.parametrize(
    "absent", ["MLBACKENDS_TRACE_FILE", "MLBACKENDS_TRACE_MARKERS"], ids=["file", "markers"]
)
def test_without_its_settings_it_does_nothing(bench: Bench, absent: str) -> None:
    done = bench.run("int main(void) { puts(LINE); }", **{absent: ""})
    assert done.stdout.decode() == f"{LINE}\n"
    assert not done.trace


@pytest.mark.parametrize("counts", ["", "/nowhere/counts", "/dev/null"], ids=str)
def test_counters_are_not_needed(bench: Bench, counts: str) -> None:
    done = bench.run("int main(void) { puts(LINE); }", MLBACKENDS_TRACE_COUNTS=counts)
    assert lines(done) == [LINE]


def test_mkls_own_file_is_stamped(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            for (int each = 0; each < 3; ++each) {
                FILE *file = fopen(getenv("MLBACKENDS_TRACE_FILE"), "a");
                if (each) fprintf(file, "MKL_VERBOSE SGEMM(N,%s,%d) ", "N", each);
                if (each) fputs("63.62us CNR:OFF\n", file);
                fflush(file);
                fclose(file);
            }
        }"""
    )
    wanted = [f"MKL_VERBOSE SGEMM(N,N,{number}) 63.62us CNR:OFF" for number in (1, 2)]
    assert lines(done) == wanted


def test_mkl_that_prints_is_traced_too(bench: Bench) -> None:
    done = bench.run(r'int main(void) { printf("MKL_VERBOSE %s\n", "SDOT(3) 1us"); }')
    assert lines(done) == ["MKL_VERBOSE SDOT(3) 1us"]


def test_a_rank_has_its_own_file(bench: Bench) -> None:
    bench.run("int main(void) { puts(LINE); }", MLBACKENDS_TRACE_RANKS="PMI_RANK,RANK", RANK="12")
    own = bench.read(bench.folder / "trace.rank12.log")
    assert [call.line for call in own] == [LINE]
    assert not bench.trace.exists()


@pytest.mark.parametrize("rank", ["", "../3", "1e9", "9" * 40], ids=repr)
def test_what_is_no_rank_names_no_file(bench: Bench, rank: str) -> None:
    done = bench.run("int main(void) { puts(LINE); }", MLBACKENDS_TRACE_RANKS="RANK", RANK=rank)
    assert lines(done) == [LINE]


def test_it_needs_the_c_library_alone(shim: str) -> None:
    assert [name.split(".")[0] for name in read_elf(shim).needed] == ["libc"]


def test_a_compiler_that_does_not_work_is_told(tmp_path: Path) -> None:
    environment = {**os.environ, "CC": str(tmp_path / "no-compiler")}
    code = (
        f"import pathlib, sys; sys.path.append({str(BUILDER)!r}); import compilation as native\n"
        f"try: native.compile_into(pathlib.Path({str(tmp_path / 'made')!r}))\n"
        "except native.NotCompiled as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "no-compiler" in done.stdout
    assert not list(tmp_path.iterdir())


def test_when_there_is_room_again_lines_stand_alone_again(bench: Bench) -> None:
    done = bench.run(
        r"""int main(void) {
            struct rlimit limit = {200, RLIM_INFINITY};
            setrlimit(RLIMIT_FSIZE, &limit);
            puts(LINE); puts(LINE); puts(LINE);
            limit.rlim_cur = RLIM_INFINITY;
            setrlimit(RLIMIT_FSIZE, &limit);
            puts(LINE);
        }"""
    )
    text = bench.trace.read_text().splitlines()
    assert done.counts[1] == 2
    assert [line.endswith(LINE) for line in text] == [True, False, True]
