"""Lines of MKL become records."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbackends.base.registry import load
from mlbackends.model.trace import AnyRecord, Header, Info, Message, MklCall

TRACES = Path(__file__).resolve().parents[3] / "traces"
STATE = "CNR:OFF Dyn:1 FastMM:1 TID:1  NThr:2"
GEMM = (
    "MKL_VERBOSE SGEMM(T,N,512,256,64,0x7ffd831da148,0x5579dafdc6a0,64,0x7f9972dfe010,64,"
    f"0x7ffd831da144,0x5579daddc690,512) 172.68us {STATE}"
)


def parse(line: str) -> AnyRecord:
    """Return the record of a line that has one."""
    found: AnyRecord | None = load("mlbackends.tracing.formats", "mkl").parse(line)
    assert found is not None, line
    return found


def trace_lines() -> list[str]:
    """Return the different lines of all logs."""
    found = set()
    for path in TRACES.glob("*.log"):
        for line in path.read_text().splitlines():
            if line.startswith(("MKL_VERBOSE ", "Intel oneMKL ERROR", "Intel MKL ERROR")):
                found.add(line)
    assert len(found) > 250
    return sorted(found)


def test_every_line_of_every_log_becomes_a_record_that_is_the_line() -> None:
    for line in trace_lines():
        assert str(parse(line)) == line


def test_the_arguments_have_names() -> None:
    record = parse(GEMM)
    assert isinstance(record, MklCall)
    assert (record.operation, record.shape, record.dtype) == ("SGEMM", "m512n256k64", "f32")
    assert record.derived.arguments["transa"] == "T"
    assert record.derived.arguments["ldc"] == "512"
    assert record.flops == 2 * 512 * 256 * 64
    assert record.bytes == 4 * (512 * 64 + 64 * 256 + 512 * 256)
    assert record.duration_ns == pytest.approx(172680)
    assert record.thread == 1
    assert record.signature.state == {"CNR": "OFF", "Dyn": "1", "FastMM": "1", "NThr": "2"}


def test_addresses_and_threads_make_no_difference_to_what_was_called() -> None:
    other = parse(GEMM.replace("0x5579dafdc6a0", "0x1c3b2a40").replace("TID:1", "TID:0"))
    assert other.key == parse(GEMM).key
    assert parse(GEMM.replace(",64,0x7f99", ",65,0x7f99")).key != other.key


def test_a_workspace_query_is_no_work() -> None:
    record = parse(f"MKL_VERBOSE DSYEVD(V,U,512,0x1,512,0x2,0x3,-1,0x4,-1,0) 32.13us {STATE}")
    assert (record.workspace_query, record.counted, record.gflops) == (True, False, None)
    assert record.executed
    work = parse(f"MKL_VERBOSE DSYEVD(V,U,512,0x1,512,0x2,0x3,527361,0x4,2563,0) 9.00ms {STATE}")
    assert (work.workspace_query, work.counted) == (False, True)


def test_strides_that_nobody_set_are_unknown_and_the_transform_is_not() -> None:
    record = parse(
        "MKL_VERBOSE FFT(dcfi1024:-7946025891748256464:0,input_strides:{-8,-7946025891748256464},"
        "output_strides:{140726803210768,0},input_distance:140726803210116,tLim:1,"
        f"desc:0x5579dacab400) 30.60us {STATE}"
    )
    assert (record.shape, record.dtype) == ("1024", "c128")
    assert record.flops == 5 * 1024 * 10
    assert set(record.derived.unknown) >= {"input_strides", "output_strides", "input_distance"}
    assert "7946025891748256464" not in record.key


def test_lengths_are_no_addresses() -> None:
    record = parse(f"MKL_VERBOSE FFT(scfi80x64,tLim:2,desc:0x5579dacab400) 2.57ms {STATE}")
    assert (record.shape, record.derived.unknown) == ("80x64", ())


@pytest.mark.parametrize(
    ("descriptor", "shape", "dtype"),
    [
        ("drfo128*64", "128*64", "f64"),
        ("srfo128:64:64x64:1:1", "128x64", "f32"),
        ("scbi32x64x128", "32x64x128", "c64"),
    ],
)
def test_descriptors_of_transforms(descriptor: str, shape: str, dtype: str) -> None:
    record = parse(f"MKL_VERBOSE FFT({descriptor},tLim:1,desc:0x55) 2.57ms {STATE}")
    assert (record.shape, record.dtype) == (shape, dtype)


def test_transforms_of_2019_have_no_brackets() -> None:
    record = parse(f"MKL_VERBOSE FFT: MAIN_DESC | dci1024:1:1 | THR_LIMIT = 1 | 0.00s {STATE}")
    assert isinstance(record, MklCall)
    assert (record.operation, record.shape, record.duration_ns) == ("FFT", "1024", 0.0)


@pytest.mark.parametrize(
    ("line", "version", "interface", "threading"),
    [
        (("oneMKL 2026 Update 2 Product build 20260915 for Intel(R) 64 architecture Intel(R) "
          "Architecture processors, Lnx 2.60GHz lp64 intel_thread"), "2026.2", "lp64", "intel_thread"),
        (("Intel(R) MKL 2019.0 Product build 20180829 for Intel(R) 64 architecture Intel(R) "
          "Architecture processors, Lnx 2.60GHz lp64 sequential"), "2019.0", "lp64", "sequential"),
        (("oneMKL 2021.0 Update 4 Product build 20210904 for Intel(R) 64 architecture Intel(R) "
          "Architecture processors, Win 2,60GHz tbb_thread"), "2021.4", "", "tbb_thread"),
    ],
)  # fmt: skip
def test_a_header_names_the_version_and_the_layers(
    line: str, version: str, interface: str, threading: str
) -> None:
    record = parse(f"MKL_VERBOSE {line}")
    assert isinstance(record, Header)
    assert record.version == version
    assert record.facts["interface"] == interface
    assert record.facts["threading"] == threading
    assert record.facts["frequency"] == "2.60"
    assert record.facts["processor"] == "Intel(R) Architecture processors"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("CNR:OFF Dyn:1 FastMM:1", {"CNR": "OFF", "Dyn": "1", "FastMM": "1"}),
        ("CNR:AUTO,STRICT Dyn:1", {"CNR": "AUTO,STRICT", "Dyn": "1"}),
        ("CNR:OFF TID:0  NThr:1,BLAS:2", {"CNR": "OFF", "NThr": "1", "BLAS": "2"}),
        ("CNR:OFF WDiv:HOST:+0.000", {"CNR": "OFF", "WDiv": "HOST:+0.000"}),
    ],
)
def test_what_stands_behind_the_time_is_an_open_list(state: str, expected: dict[str, str]) -> None:
    record = parse(f"MKL_VERBOSE SDOT(512,0x7f,1,0x55,1) 28.43us {state}")
    assert isinstance(record, MklCall)
    assert record.signature.state == expected


@pytest.mark.parametrize(
    ("time", "nanoseconds"),
    [("512.25ns", 512.25), ("12.17us", 12170), ("12,17ms", 12_170_000), ("1.00s", 1e9)],
)
def test_times_in_all_units_and_locales(time: str, nanoseconds: float) -> None:
    record = parse(f"MKL_VERBOSE SDOT(512,0x7f,1,0x55,1) {time} {STATE}")
    assert record.duration_ns == pytest.approx(nanoseconds)


def test_decimal_commas_among_the_arguments() -> None:
    spaced = parse(f"MKL_VERBOSE MKL_DOMATCOPY(c, t, 64, 32, 1,000000, 0x1, 512, 0x2, 512) 1,00us {STATE}")
    assert spaced.derived.arguments["alpha"] == "1,000000"
    assert (spaced.shape, spaced.flops, spaced.bytes) == ("rows64cols32", 0, 2 * 8 * 64 * 32)
    packed = parse(f"MKL_VERBOSE vdRngGaussian(2,0x1,1000,0x2,0,000000,1,000000) 1,00us {STATE}")
    assert packed.derived.arguments["sigma"] == "1,000000"


def test_a_routine_that_is_not_known_has_numbered_arguments() -> None:
    record = parse(f"MKL_VERBOSE DNOSUCH(3,0x7f) 28.43us {STATE}")
    assert record.derived.arguments == {"1": "3", "2": "0x*"}
    assert (record.flops, record.bytes, record.shape) == (None, None, "")


def test_warnings_and_errors_are_messages() -> None:
    warning = parse("MKL_VERBOSE WARNING: Unable to open verbose output file.")
    error = parse("Intel oneMKL ERROR: Parameter 9 was incorrect on entry to cblas_sgemm.")
    assert isinstance(warning, Message)
    assert isinstance(error, Message)
    assert (warning.level, error.level, error.origin) == ("warning", "error", "cblas_sgemm")


def test_a_header_may_go_on_and_name_a_patch() -> None:
    old, patched = (parse(line) for line in trace_lines() if "NMICDev:0" in line or "Patch 2" in line)
    if isinstance(old, Header) and isinstance(patched, Header):
        assert (old.version, old.facts["threading"]) == ("2018.1", "intel_thread")
        assert (patched.version, patched.facts["build"]) == ("2024.2.2", "20240823")
        assert patched.facts["processor"].endswith("FP16 (limited) instructions")
    else:
        raise TypeError


def test_a_call_on_a_gpu_had_only_begun_and_took_no_known_time() -> None:
    seen = 0
    for line in trace_lines():
        if "oneapi::mkl" in line:
            record = parse(line)
            assert (record.duration_ns, record.counted) == (None, True)
            assert record.operation.startswith("oneapi::mkl::blas::")
            seen += 1
    assert seen == 2


def test_a_call_whose_arguments_mkl_cuts_off_is_a_call() -> None:
    [line] = [line for line in trace_lines() if line.count("(") and ")" not in line]
    record = parse(line)
    assert isinstance(record, MklCall)
    assert (record.operation, record.shape) == ("SGEMM_BATCH", "")
    assert record.duration_ns == pytest.approx(22830)
    assert record.signature.state["NThr"] == "8"
    assert load("mlbackends.tracing.formats", "mkl").parse(line.replace("(N,T,", "(N,", 1)) is None


@pytest.mark.parametrize("size", ["9" * 400, "9" * 5000, "5x12", "-3"])
@pytest.mark.parametrize("name", ["m", "lda", "ldc"])
def test_a_damaged_size_is_no_size(size: str, name: str) -> None:
    place = {"m": 2, "lda": 7, "ldc": 12}[name]
    head, _, rest = GEMM.partition("(")
    arguments, _, tail = rest.partition(") ")
    values = arguments.split(",")
    values[place] = size
    record = parse(f"{head}({','.join(values)}) {tail}")
    assert record.derived.arguments[name] in {size, "?"}
    assert (record.flops is None) == (name == "m")


@pytest.mark.parametrize("who", ["mkl-service", "Numpy"])
def test_what_mkl_service_tells_is_information(who: str) -> None:
    record = parse(f"{who} + Intel(R) MKL: THREADING LAYER: (null)")
    assert isinstance(record, Info)
    assert (record.topic, record.text) == ("mkl-service", "THREADING LAYER: (null)")


def test_a_gpu_is_told_of() -> None:
    assert isinstance(parse("MKL_VERBOSE Detected GPU0 Intel(R)_Data_Center_GPU_Max_1550"), Info)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "MKL_VERBOSE ",
        "MKL_VERBOSE is set",
        GEMM[:-20],
        GEMM[:80],
        GEMM.replace("TID:1", "TID:"),
        GEMM + GEMM,
        GEMM.replace(" 172.68us", ""),
        "MKL_VERBOSE oneMKL 2026 Update 2 Product build 20260915 for Intel",
        "Intel oneMKL ERROR: ",
    ],
)
def test_what_does_not_keep_to_the_grammar_is_no_record(line: str) -> None:
    if line == GEMM.replace(" 172.68us", ""):  # lines of GPUs have no time
        assert parse(line).duration_ns is None
    else:
        assert load("mlbackends.tracing.formats", "mkl").parse(line) is None


def test_a_line_that_is_cut_anywhere_raises_nothing() -> None:
    tracer = load("mlbackends.tracing.formats", "mkl")
    for line in trace_lines()[::9]:
        for end in range(len(line)):
            tracer.parse(line[:end])


def test_the_environment_names_the_file() -> None:
    tracer = load("mlbackends.tracing.formats", "mkl")
    assert tracer.environment() == {"MKL_VERBOSE": "1"}
    assert tracer.environment(file="/tmp/mkl.log")["MKL_VERBOSE_OUTPUT_FILE"] == "/tmp/mkl.log"
