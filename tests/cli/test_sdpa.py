"""`backends sdpa`: who can compute, what each takes, and whether it is right; as a user runs it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shlex
from pathlib import Path

import msgspec
import pytest
from attention_runs import ran, ran_alone, record, results
from running import backends

from mlbackends.model.checked import Checked
from mlbackends_cli import formats

PROBLEMS = Path(__file__).resolve().parents[1] / "problems"
SHAPE = ("--shape", "1,2,8,16")
QUICK = (*SHAPE, "--rounds", "0")

BACKEND = """
import os, signal, sys, time
from mlbackends.base import registry
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.constraints import on_device
from mlbackends.sdpa.switches import SDPBackend

class Fake(AttentionBackend):
    name, answers_to = "{name}", SDPBackend.FLASH_ATTENTION
    constraints = (on_device("cpu"),)
    takes = frozenset({{"dropout", "lower_right", "mask"}})
    tolerance = {{"float32": 2.0}}
    def run(self, problem, query, key, value, mask=None):
        right = registry.load("mlbackends_kernels", "math").attend(problem, query, key, value, mask)[0]
        {body}
"""
BODIES = {
    "crashing": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exiting": "print('out of luck', file=sys.stderr); os._exit(3)",
    "hanging": "time.sleep(1000)",
    "raising": "raise ValueError('no\\n luck')",
    "wrong": "return right * 1.001",
    "unfinished": "right[..., 0, 0] = float('nan'); return right",
    "short": "return right[..., :-1]",
    "noisy": "os.write(1, b'{\"details\": {}}\\n' * 9); print('hello'); return right",
}
STEEP = """
from mlbackends.base import registry
from mlbackends.sdpa.constraints import on_device

class Steep(registry.load("mlbackends_kernels", "math").Math):
    name = "steep"
    tolerance = {}
    def run_backward(self, *given):
        found = super().run_backward(*given)
        return found._replace(key=found.key * 1.01)
"""
PEER = """
from mlbackends_kernels.checking import program
from mlbackends.sdpa.verify.peer import Peer
PEERS = (
    Peer("halved", "half of what is right", "MATH", "python", (), {path!r}, (program("serving"),)),
)
"""
PROGRAM = """
import importlib.util, sys, array
spec = importlib.util.spec_from_file_location("serving", sys.argv[1])
serving = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serving)

class Halved(serving.Prepared):
    details = {"version": "0.5"}
    def __init__(self, request):
        with open(request["files"]["value"], "rb") as file:
            self.value = array.array("f", file.read())
    def call(self):
        return array.array("f", (each / 2 for each in self.value))
    def save(self, result, path):
        with open(path, "wb") as file:
            file.write(result.tobytes())

serving.serve(Halved)
"""


@pytest.fixture(scope="module")
def additions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give the environment in which another distribution adds backends and a peer."""
    folder = tmp_path_factory.mktemp("additions")
    package, metadata = folder / "fake_attention", folder / "fake_attention-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    lines = ["[mlbackends.kernels]"]
    for name, body in BODIES.items():
        (package / f"{name}.py").write_text(BACKEND.format(name=name, body=body))
        lines.append(f"{name} = fake_attention.{name}")
    (package / "steep.py").write_text(STEEP)
    lines.append("steep = fake_attention.steep")
    (package / "program.py").write_text(PROGRAM)
    (package / "halved.py").write_text(PEER.format(path=str(package / "program.py")))
    lines += ["[mlbackends.kernels.peers]", "halved = fake_attention.halved"]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-attention\nVersion: 1.0\n")
    return {"PYTHONPATH": str(folder)}


# ---- explain ---------------------------------------------------------------------


def test_explain_tells_all_sides_and_their_reasons() -> None:
    data = record("explain", *SHAPE, "--dtype", "float16", "--device", "sm90,sm75")
    hopper, turing = data["problems"]

    assert data["exit"] == 0
    assert hopper["torch_chosen"] == "CUDNN_ATTENTION"
    assert turing["torch_chosen"] == "EFFICIENT_ATTENTION"
    flash = next(verdict for verdict in turing["torch_verdicts"] if verdict["backend"] == "FLASH_ATTENTION")
    assert [reason["code"] for reason in flash["reasons"]] == ["wrong-capability"]
    assert turing["chosen"] == "efficient_cuda"


def test_a_variable_that_is_no_value_is_told_in_one_line() -> None:
    done = ran_alone("explain", *SHAPE, environment={"OMP_NUM_THREADS": "abc"})

    assert done.returncode == 0
    assert done.stderr.startswith("backends: Ignoring invalid value for flag OMP_NUM_THREADS: abc")
    assert done.stderr.count("\n") == 1


def test_explain_exits_1_where_nobody_can() -> None:
    done = ran("explain", *SHAPE, "--dtype", "int8")

    assert done.returncode == 1
    assert "mlbackends would choose no backend" in done.stdout
    assert " would choose none: it would raise an error" in done.stdout


def test_explain_begins_with_torch_and_does_not_vouch_for_what_is_not_installed(
    tmp_path: Path,
) -> None:
    metadata = tmp_path / "torch-2.14.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.14.1\n")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['cudnn'] = None\n")
    words = (*SHAPE, "--device", "h100")
    done = ran_alone("explain", *words, environment={"PYTHONPATH": str(tmp_path)})
    text = done.stdout

    assert done.returncode == 0
    assert "--dtype bfloat16 --device h100-sxm" in text.splitlines()[0]
    assert "torch 2.14 with cuDNN 9.24.0 would choose CUDNN_ATTENTION" in text
    assert text.index("torch 2.14 with") < text.index("mlbackends would choose efficient_cuda")
    assert "?  cudnn           nvidia-cudnn-frontend is not installed" in text
    assert "–  flash_cpu       not for tensors on cuda [wrong-device]" in text
    last = " ".join(text.partition("torch 2.14.1 is installed here")[2].split())
    assert last == "; cuDNN was not found, and that of torch's wheels is assumed"


def test_a_basic_install_computes_nothing_and_says_once_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['numpy'] = None\n")
    for command in ("check", "bench"):
        words = (*SHAPE, "--rounds", "1")
        done = ran_alone(command, *words, environment={"PYTHONPATH": str(tmp_path)})

        assert done.returncode == 3, done.stdout
        assert done.stdout.count("numpy is not installed") == 2
        assert done.stdout.count("→ pip install") == 1


def test_explain_exits_1_where_the_required_one_cannot() -> None:
    done = ran("explain", *SHAPE, "--require", "efficient_cuda")
    assert done.returncode == 1
    assert "efficient_cuda is required, but does not support --shape" in done.stderr
    assert ran("explain", *SHAPE, "--require", "math").returncode == 0
    on_hopper = ("--device", "sm90", "--dtype", "bfloat16")
    assert ran("explain", *SHAPE, *on_hopper, "--require", "efficient_cuda").returncode == 0


def test_of_many_problems_explain_tells_who_takes_each() -> None:
    grid = ("explain", *SHAPE, "--dtype", "float16,float32", "--device", "sm80,sm90,cpu")
    rows, whole = ran(*grid).stdout, ran(*grid, "--all").stdout

    assert len([line for line in rows.splitlines() if line.startswith("--shape")]) == 6
    assert "CUDNN_ATTENTION" in rows
    assert "wrong-dtype" in whole
    assert "wrong-dtype" not in rows


# ---- what makes no sense -----------------------------------------------------------


@pytest.mark.parametrize("command", ["explain", "check"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no problem is given"),
        (("--shape", "1,2,8"), ""),
        (("--shape", "1,2,8,-4"), "not a whole number"),
        ((*SHAPE, "--dtype", "float31"), "did you mean 'float32'?"),
        ((*SHAPE, "--device", "sm91"), "did you mean 'sm90'?"),
        ((*SHAPE, "--kv-heads", "1", "--gqa", "--mask", "causl"), "did you mean 'causal'?"),
        ((*SHAPE, "--causal", "--mask", "bool"), "fold causality into the mask"),
        ((*SHAPE, "--device", "h1000"), "did you mean 'h100'?"),
        (("T4",), "--device t4`?"),
        ((*SHAPE, "--dropout", "7"), "between 0 and 1"),
        ((*SHAPE, "--backend", "mth"), "did you mean 'math'?"),
        ((*SHAPE, "--require", "mth"), "did you mean 'math'?"),
        (("--problems", "/nonexistent"), "No such file or directory"),
        ((*SHAPE, "--sape", "1"), "--sape"),
    ],
)
def test_what_makes_no_sense_exits_2(command: str, words: tuple[str, ...], said: str) -> None:
    if not said:
        assert ran(command, *words, *(["--rounds", "0"] * (command == "check"))).returncode == 0
        return
    done = ran(command, *words)

    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("device", ["sm90", "gfx942", "mps", "meta", "cpu:amx"])
def test_check_computes_on_no_device_that_is_not_here(device: str) -> None:
    done = ran("check", *SHAPE, "--device", device)

    assert done.returncode == 2
    assert "sdpa explain" in done.stderr


def test_a_problem_that_no_memory_holds_is_not_begun() -> None:
    data = record("check", "--shape", "64,1024,16384,128", "--rounds", "0")

    assert data["exit"] == 1
    assert "GiB are free" in data["problems"][0]["failure"]


# ---- list --------------------------------------------------------------------------


def test_list_tells_what_each_takes_and_whether_it_is_usable() -> None:
    data = record("list")
    entries = {backend["name"]: backend for backend in data["backends"]}

    assert entries["math"]["unavailable_reasons"] == []
    assert "no mask other than a causal one" in entries["flash_attn_2"]["takes"]
    assert {"dropout", "gradients", "mask gradients", "logsumexp"} <= set(entries["math"]["can"])
    assert "boolean masks" not in entries["cudnn"]["can"]
    assert "paged keys" in entries["math"]["can"]
    assert "mask gradients" not in entries["torch_flash"]["can"]
    assert "mask gradients" in entries["torch_math"]["can"]
    assert "inputs that require no gradient" not in entries["math"]["takes"]
    assert entries["torch_flash"]["peer"]
    assert ran("list").stdout.count("\n  is") == len(entries)
    assert ran("list", "--format", "markdown").stdout.count("\n| ") == len(entries) + 1


def test_an_addition_that_cannot_be_imported_is_listed_with_why(tmp_path: Path) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[mlbackends.kernels]\nbroken = nothing_there\n")
    data = record("list", run=ran_alone, environment={"PYTHONPATH": str(tmp_path)})
    (entry,) = [backend for backend in data["backends"] if backend["name"] == "broken"]

    assert "nothing_there" in entry["unavailable_reasons"][0]["message"]


# ---- check -------------------------------------------------------------------------


def test_check_tells_error_time_and_memory() -> None:
    data = record("check", *SHAPE, "--backend", "math", "--rounds", "1")
    (problem,) = data["problems"]
    (math,) = problem["results"]

    assert data["exit"] == 0
    assert math["ended"] == "ran"
    assert 0 < math["errors"]["largest_absolute"] <= math["errors"]["largest_allowed"]
    assert math["errors"]["in_reference_errors"] == 1
    assert math["timing"]["median_seconds"] > 0
    assert math["timing"]["share_of_peak"] > 0
    assert problem["peak_gflops"] > 0
    assert problem["flops"] == 2 * 2 * 8 * 8 * 32


@pytest.mark.slow
def test_every_feature_is_right() -> None:
    # The plain formula is what others are held to: where there is another, that one is enough.
    (flash,) = [backend for backend in record("list")["backends"] if backend["name"] == "flash_cpu"]
    name = "math" if flash["unavailable_reasons"] else "flash_cpu"
    words = ("--problems", str(PROBLEMS / "small.txt"), "--rounds", "0", "--backend", name)
    data = record("check", *words)

    assert data["exit"] == 0
    assert len(data["problems"]) == 53
    for problem in data["problems"]:
        assert results(problem)[name]["ended"] == "ran", problem["text"]


def test_an_exact_result_that_takes_too_long_says_what_gives_it_longer() -> None:
    done = ran_alone("check", *QUICK, "--backend", "math", "--timeout", "0.01")

    assert done.returncode == 1
    assert "did not answer within 0.01 s" in " ".join(done.stdout.split())
    assert "use a longer --timeout" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_whatever_a_backend_does_is_a_row(additions: dict[str, str]) -> None:
    tried = [("--backend", name) for name in ("math", *BODIES) if name != "hanging"]
    data = record("check", *QUICK, *itertools.chain(*tried), run=ran_alone, environment=additions)
    rows = results(data["problems"][0])
    hanging = ("--backend", "hanging", "--timeout", "5")
    rows |= results(record("check", *QUICK, *hanging, run=ran_alone, environment=additions)["problems"][0])

    assert data["exit"] == 1
    assert {name: rows[name]["ended"] for name in BODIES} == {
        "crashing": "crashed", "exiting": "crashed", "hanging": "timed-out", "raising": "raised",
        "wrong": "ran", "unfinished": "ran", "short": "raised", "noisy": "ran",
    }  # fmt: skip
    said = {
        name: " ".join(reason["message"] for reason in row.get("reasons", ())) for name, row in rows.items()
    }
    assert "SIGSEGV" in said["crashing"]
    assert "exit code 3" in said["exiting"] and "out of luck" in said["exiting"]
    assert "within 5 s" in said["hanging"]
    assert said["raising"] == "ValueError: no luck"
    assert "bytes; it must have 1024: 256 elements of float32" in said["short"]
    assert rows["wrong"]["errors"]["largest_absolute"] > rows["wrong"]["errors"]["largest_allowed"]
    assert rows["unfinished"]["errors"]["misplaced"] == 2
    assert rows["noisy"]["errors"]["in_reference_errors"] == 1
    assert rows["math"]["ended"] == "ran"


def test_a_failure_prints_the_command_that_repeats_it(additions: dict[str, str]) -> None:
    words = (*QUICK, "--mask", "bool:8,1", "--scale", "0.5", "--seed", "7")
    done = ran_alone("check", *words, "--backend", "wrong", environment=additions)
    lines = [line.strip() for line in done.stdout.splitlines()]
    (line,) = [line for line in lines if line.startswith("backends sdpa check ")]
    again = backends(*shlex.split(line)[1:], "--rounds", "0", environment=additions)

    assert done.returncode == again.returncode == 1
    assert "wrong is wrong: the largest error is" in done.stdout
    assert "--seed 7" in line and "--mask bool:8,1" in line
    assert "copies to the CPU" not in done.stdout  # the problem is there already
    row, again_row = (
        next(line for line in run.stdout.splitlines() if line.startswith("  ✗  wrong "))
        for run in (done, again)
    )
    # Without its last column, the memory that was seen, which varies by a page.
    assert row.rpartition("+")[0] == again_row.rpartition("+")[0] != ""


def test_where_no_backend_ran_that_is_said() -> None:
    none = ran("check", *QUICK, "--dtype", "int8")
    assert none.returncode == 3
    flat = " ".join(none.stdout.split())  # the summary is wrapped
    assert flat.endswith("threads: no backend ran") and "nothing wrong" not in flat
    assert "No backend ran." in ran("check", *QUICK, "--dtype", "int8", "--format", "markdown").stdout

    some = ran("check", *QUICK, "--dtype", "int8,float32", "--backend", "math")
    assert some.returncode == 3
    assert ran("bench", *SHAPE, "--rounds", "1", "--dtype", "int8").returncode == 3
    flat = " ".join(some.stdout.split())
    assert "nothing wrong in what ran; no backend ran for 1 of 2" in flat


def test_what_is_required_must_run() -> None:
    quick = ("check", *QUICK, "--backend", "math", "--require")
    data = record(*quick, "efficient_cuda")

    assert data["exit"] == 1
    assert results(data["problems"][0])["efficient_cuda"]["ended"] == "cannot"
    assert record(*quick, "math")["exit"] == 0
    why = "required, but needs cuda tensors; these are on cpu"
    for form in ("table", "markdown", "junit", "html"):
        page = ran(*quick, "efficient_cuda", "--format", form).stdout
        assert why in " ".join(page.split())
        assert "--backend efficient_cuda" not in page  # it would be refused again


def test_a_peer_computes_in_its_own_process_and_is_not_to_blame(additions: dict[str, str]) -> None:
    data = record("check", *QUICK, "--backend", "halved", run=ran_alone, environment=additions)
    (row,) = data["problems"][0]["results"]

    assert data["exit"] == 0
    assert row["peer"] and row["details"] == {"version": "0.5"}
    assert row["errors"]["largest_absolute"] > row["errors"]["largest_allowed"]
    words = ("--backend", "halved", "--require", "halved")  # not the one that hangs, too
    assert record("check", *QUICK, *words, run=ran_alone, environment=additions)["exit"] == 1


def test_a_peer_that_is_not_installed_says_so() -> None:
    data = record("check", *QUICK, "--backend", "torch_flash")
    (row,) = data["problems"][0]["results"]

    if importlib.util.find_spec("torch"):
        assert row["ended"] == "ran"
    else:
        assert row["ended"] == "cannot"
        assert "--python EXE" in row["reasons"][0]["hint"]


def test_weights_that_a_peer_drops_for_itself_are_not_compared(additions: dict[str, str]) -> None:
    words = ("--dropout", "0.5", "--backend", "noisy", "--backend", "halved")
    data = record("check", *QUICK, *words, run=ran_alone, environment=additions)
    rows = results(data["problems"][0])

    assert data["exit"] == 0
    assert rows["halved"].get("errors") is None
    assert "draws its own dropout" in rows["halved"]["incomparable"]
    assert rows["noisy"]["errors"]["in_reference_errors"] == 1


# ---- check --backward --------------------------------------------------------------


def test_gradients_are_held_to_float64_and_timed() -> None:
    words = ("--mask", "8,8", "--mask-gradient", "--backend", "math", "--rounds", "1")
    (problem,) = record("check", *SHAPE, *words)["problems"]
    (math,) = problem["results"]

    assert problem["text"].endswith("--mask 8,8 --backward --mask-gradient")
    assert problem["flops"] == 2 * 2 * 8 * 8 * 5 * 16
    assert list(math["gradients"]) == list(problem["gradient_errors"])
    assert list(math["gradients"]) == ["query", "key", "value", "mask"]
    for name, errors in math["gradients"].items():
        assert errors["largest_absolute"] == problem["gradient_errors"][name] > 0
    assert math["errors"]["in_reference_errors"] == 1
    assert math["timing"]["share_of_peak"] > 0


def test_who_computes_no_gradients_says_so(additions: dict[str, str]) -> None:
    words = ("--backward", "--backend", "noisy", "--backend", "halved")
    data = record("check", *QUICK, *words, run=ran_alone, environment=additions)

    assert data["exit"] == 3
    for row in results(data["problems"][0]).values():
        assert [reason["code"] for reason in row["reasons"]] == ["gradient"]


def test_a_wrong_gradient_is_named(additions: dict[str, str]) -> None:
    words = ("--backward", "--backend", "steep", "--rounds", "0")
    done = ran_alone("check", *SHAPE, *words, environment=additions)
    data = record("check", *SHAPE, *words, run=ran_alone, environment=additions)
    (row,) = data["problems"][0]["results"]

    assert done.returncode == data["exit"] == 1
    assert "steep is wrong: the largest error of the gradient of key is" in done.stdout
    assert "backends sdpa check --shape 1,2,8,16 --backward --backend steep" in done.stdout
    assert row["errors"]["in_reference_errors"] == 1
    wrong = [
        name
        for name, gradient in row["gradients"].items()
        if gradient["largest_absolute"] > gradient["largest_allowed"]
    ]
    assert wrong == ["key"]


@pytest.fixture(scope="module")
def failed(additions: dict[str, str]) -> Checked:
    """Return a check of which one backend is wrong, and one cannot."""
    names = ("--backend", "wrong", "--backend", "efficient_cuda")
    done = ran_alone("check", *QUICK, *names, "--format", "json", environment=additions)
    return msgspec.json.decode(done.stdout, type=Checked)


@pytest.mark.parametrize("form", formats.names("outcome"))
def test_every_format_tells_what_failed(form: str, failed: Checked, tmp_path: Path) -> None:
    saved, path = tmp_path / "then.json", tmp_path / "out"
    saved.write_bytes(msgspec.json.encode(failed))
    done = ran("check", "--from", str(saved), "--format", form, "--output", str(path))
    text = path.read_text()

    assert done.returncode == 1
    assert done.stdout == "" or form == "github"
    assert "wrong" in text


def test_a_processor_of_less_than_this_one_is_taken_at_its_word() -> None:
    done = ran("check", *QUICK, "--device", "cpu:baseline", "--backend", "flash_cpu", "--format", "json")

    if done.returncode == 2:
        assert "cannot be computed on here: no sse2" in done.stderr  # another architecture
        return
    (row,) = msgspec.json.decode(done.stdout)["problems"][0]["results"]
    if row["ended"] == "ran":
        assert row["details"]["instruction set"] in ("baseline", "neon")
    else:
        assert [reason["code"] for reason in row["reasons"]] == ["missing-part"]


def test_an_interpreter_without_a_name_is_refused() -> None:
    for words in ("'torch_flash=' names no interpreter", "has an empty value"):
        done = ran("check", *QUICK, "--peers", "--python", words.partition("'")[2].partition("'")[0])
        assert (done.returncode, done.stderr.startswith(f"backends: --python {words}\n")) == (2, True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("command", ["check", "bench"])
def test_a_saved_run_is_a_file_that_ends(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)):
        done = ran(command, "--from", path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"backends: {path} ")  # a pipe without a writer is empty


def test_explain_marks_known_wrong_choices_in_every_form() -> None:
    decode = (
        "explain",
        "--shape",
        "2,8,1,64",
        "--kv-len",
        "128",
        "--torch",
        "2.13.0+cu130",
        "--cudnn",
        "92000",
    )
    many, page = (*decode, "--device", "b200,h100,l4,h20,mps"), (*decode, "--device", "b200")

    rows = ran(*many).stdout.splitlines()
    assert "CUDNN_ATTENTION, but known wrong" in rows[1] and "µs" in rows[1] and "2.13.0+cu130" in rows[1]
    assert "known wrong" not in "".join(rows[2:])
    assert "at best" in ran(*page, "--format", "markdown").stdout


def test_the_matrix_is_a_block_of_code_in_markdown() -> None:
    done = ran("explain", *SHAPE, "--device", "b200,h100", "--matrix", "--format", "markdown")
    assert done.stdout.startswith("```text\n--shape") and done.stdout.endswith("```\n")
    assert "h100-sxm" in done.stdout and "| whose |" not in done.stdout


def test_the_least_time_is_in_the_unit_that_fits_and_left_out_for_no_work() -> None:
    large = ran("explain", "--shape", "8,64,1000000,256", "--device", "h100", "--backward").stdout
    assert "at best 1,325 s for the backward pass" in large
    assert "at best" not in ran("explain", "--shape", "0,8,128,64", "--device", "h100").stdout


@pytest.mark.parametrize("words", ["--torch 2", "--torch ,", "--cuda abc", "--rocm 1e9", "--driver -1"])
def test_explain_refuses_what_is_not_a_version(words: str) -> None:
    done = ran("explain", *SHAPE, "--device", "h100", *words.split())
    assert done.returncode == 2 and done.stderr.count("\n") <= 2


def test_the_devices_are_listed_with_what_each_torch_supports() -> None:
    rows = [line.split() for line in ran("list", "--devices", "--torch", "2.10..2.12").stdout.splitlines()]
    assert ["sm70", "2.10", "✓", "EFFICIENT", "✗", "✓", "✓", "✗", "✓"] in rows
    assert ["sm70", "2.11", "to", "2.12", "✗", "EFFICIENT", "✗", "✓", "✓", "✗", "✓"] in rows
    assert ["gfx1100", "2.11", "to", "2.12", "–", "FLASH", "✓", "✓", "✓", "–", "✓"] in rows

    old = ran("list", "--devices", "--torch", "2.13", "--driver", "550").stdout
    assert "sm90 2.13 ✓ raises" in " ".join(old.split())
    for words in (["--torch", "2.13"], ["--devices", "--cuda", "x"], ["--devices", "--torch", "3"]):
        assert ran("list", *words).returncode == 2, words


def test_a_page_says_what_assumed_versions_mean() -> None:
    words = ("explain", *SHAPE, "--device", "h100", "--torch", "2.13", "--driver", "550.54")
    assert "the driver is 550.54" in " ".join(ran(*words).stdout.split())
    older = ran(*words, "--cuda", "12.6", "--format", "markdown").stdout
    assert "CUDA 12.6 needs driver 525 or newer" in older and "driver-too-old" not in older
    (told,) = record(*words)["problems"]
    assert told["wheel_has_code"] is True and not told["torch_chosen"]


def test_the_devices_are_listed_with_the_products() -> None:
    listed = ran("list", "--devices").stdout
    assert "geforce-rtx-4090" in listed and "mi300x" in listed


def test_checking_known_wrong_numbers_where_no_report_is_about_the_device_computes_nothing() -> None:
    done = ran("check", "--known-wrong", "--device", "gaudi 3")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "backends: no report of wrong attention is about this device: nothing to compute\n"
    )
