"""Files of switches: what they may hold, and how what is wrong with one is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.switches import files
from mlbackends.switches.kinds import Choice, Count, Permutation, Reduction, Text, ThreadCounts
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.switches.table import Switch

#: One switch of each kind: the others share its kind.
OF_EACH_KIND = list({flag.kind: name for name, flag in SWITCHES.items() if not flag.read_only}.values())
SETTABLE = {name: flag for name, flag in SWITCHES.items() if not flag.read_only}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> str:
        file = tmp_path / "flags.toml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(file)

    return write


def test_tables_and_dotted_keys_name_switches(written: Any) -> None:
    path = written(
        """
        fp32_precision = "ieee"   # what follows is a table
        cudnn.benchmark = true
        [cuda.matmul]
        allow_fp16_reduced_precision_reduction = [false, true]
        [cuda]
        cublas_workspace_size = 33554432
        sdp_priority_order = [
            "math", "flash_attention", "efficient_attention", "cudnn_attention", "overrideable",
        ]
        [openmp]
        num_threads = 8
        [mkldnn]
        verbose_level = "dispatch"
        """
    )
    assert files.read(path) == {
        "fp32_precision": "ieee",
        "cudnn.benchmark": True,
        "cuda.matmul.allow_fp16_reduced_precision_reduction": (False, True),
        "cuda.cublas_workspace_size": 32 << 20,
        "cuda.sdp_priority_order": (0, 1, 2, 3, 4),
        "openmp.num_threads": "8",
        "mkldnn.verbose_level": "dispatch",
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "[cudnn]\n[cuda.matmul]\n"])
def test_a_file_may_say_nothing(written: Any, text: str) -> None:
    assert files.read(written(text)) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cudnn]\n\nbenchmrak = true\n", "flags.toml:3: there is no switch named 'cudnn.benchmrak'"),
        ("[cudn]\n", "there is no switch named 'cudn'"),
        ("cudnn = true\n", "flags.toml:1: cudnn is a group, not a switch: cudnn.enabled, "),
        ("[[cudnn]]\nbenchmark = true\n", "flags.toml:1: cudnn is a group, not a switch: "),
        ("x = 1\n[cudnn]\nbenchmark = 1\n", "flags.toml:1: there is no switch named 'x'"),
        ("[cudnn]\nbenchmark = 1\n",
         "flags.toml:2: cudnn.benchmark cannot be 1: expects a bool, but got int; valid values are true"),
        ("[cudnn]\nbenchmark = 'yes'\n", "flags.toml:2: .* cannot be 'yes': valid values are true or false$"),
        ("[cudnn.benchmark]\n", "cudnn.benchmark cannot be {}"),
        ("[cudnn]\nbenchmark_limit = 1.5\n", "cannot be 1.5: expects an int"),
        ("openmp.num_threads = 1.5\n", "cannot be 1.5: expects a whole number, or several as text"),
        ("cudnn.benchmark_limit = 9999999999999999999\n", r"must be at most 2\*\*63 - 1"),
        ("cudnn.benchmark_limit = " + "9" * 5000, "a number in it has thousands of digits"),
        ("mkldnn.verbose_level = 0x" + "f" * 9000, "^.{10,300}$"),
        ("[cudnn]\nbenchmark_limit = 1979-05-27\n", "expects an int, but got datetime.date"),
        ("[cudnn]\ndepthwise_kernel = 'cudn'\n", "did you mean 'cudnn'"),
        ("fp32_precision = ['ieee']\n", "expects a string, but got list"),
        ("[xnnpack]\nenabled = true\n", "read-only"),
        ("[cudnn\n", "flags.toml:1: Expected .* \\(column 7\\)$"),
        ("a = 1\na = 2\n", "flags.toml:2: Cannot overwrite"),
        ("cudnn.enabled = true\nx =", "flags.toml:2: Invalid value \\(at the end\\)$"),
        (b"\n\xff\xfe\x00", "flags.toml:2: not UTF-8 at byte 1$"),
        (b"\x00\x01\x02", "flags.toml:1: "),
        ("x = " + "[" * 100_000, "flags.toml:1: nested more than 40 deep$"),
        ("a." * 5000 + "b = 1", "flags.toml:1: nested more than 40 deep$"),
        ("k" * 100_000 + " = 1", "flags.toml:1: there is no switch named 'k{77}\\.\\.\\.'$"),
        ("fp32_precision = '" + "k" * 100_000 + "'", "^.{10,300}$"),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB: that is not a file of switches"),
    ],
    ids=lambda each: repr(each)[:40],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_line_and_key(written: Any, text: str | bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        files.read(written(text))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_passed_over(written: Any, encoding: str) -> None:
    assert files.read(written("cudnn.benchmark = true".encode(encoding))) == {"cudnn.benchmark": True}


def test_a_file_called_dash_is_not_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("cudnn.benchmark = true")
    assert files.read("-") == {"cudnn.benchmark": True}


def test_a_file_that_contradicts_itself_is_refused(written: Any) -> None:
    path = written("[cuda.matmul]\nallow_tf32 = true\nfp32_precision = 'ieee'\n")

    with pytest.raises(
        BadInput, match=r"flags.toml:3: cuda.matmul.allow_tf32=1 and .* contradict each other"
    ):
        files.read(path)


def test_what_is_no_readable_file_is_told(tmp_path: Path) -> None:
    missing, fifo = tmp_path / "nosuch", tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, said in (
        (str(missing), "No such file"),
        (str(tmp_path), "Is a directory"),
        (str(fifo), "it is a pipe"),
        (f"{missing}\0", "null"),
        (os.devnull + "/x", "Not a directory"),
        ("x" * 5000, "too long"),
    ):
        with pytest.raises(BadInput, match=said):
            files.read(path)
    assert files.read(os.devnull) == {}


@given(st.binary(max_size=200))
def test_any_bytes_are_switches_or_one_error(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            assert set(files.read(file.name)) <= set(SWITCHES)
        except BadInput as error:
            assert file.name in str(error)  # noqa: PT017  most bytes are no TOML, and some are


@pytest.mark.parametrize("name", OF_EACH_KIND)
@given(st.data())
def test_a_value_comes_back_from_data_and_from_text(name: str, data: st.DataObject) -> None:
    flag = SETTABLE[name]
    value = data.draw(kept(flag))

    assert files.from_data(flag, files.as_data(flag, value)) == value
    if not isinstance(flag.kind, Count):  # whose variable has a unit of its own
        assert files.from_text(flag, flag.kind.written(value)) == value


def kept(flag: Switch) -> st.SearchStrategy[Any]:
    """Return values as the store keeps them."""
    kind = flag.kind
    if isinstance(kind, Reduction):
        return st.sampled_from([(True, True), (False, True), (False, False)])
    if isinstance(kind, Choice):
        return st.sampled_from(kind.words)
    if isinstance(kind, Permutation):
        return st.permutations(range(len(kind.words))).map(tuple)
    if isinstance(kind, Count):
        return st.integers(kind.lowest, 2**63 - 1)
    if isinstance(kind, ThreadCounts):
        counts = st.lists(st.integers(1, 999_999_999), min_size=1)
        return counts.map(lambda numbers: ",".join(map(str, numbers)))
    if isinstance(kind, Text):
        return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    return st.booleans()


def test_settings_are_names_and_values() -> None:
    assert files.settings(("cudnn.benchmark=on", " fp32_precision = ieee ")) == {
        "cudnn.benchmark": True,
        "fp32_precision": "ieee",
    }
    for texts, error, said in (
        (("cudnn.benchmark",), BadInput, "not a setting"),
        (("cudnn.benchmrak=1",), UnknownName, "benchmrak"),
        (("cudnn.benchmark=3",), BadInput, "cannot be '3': valid values are true or false"),
        (("cudnn=1",), UnknownName, "cudnn is a group, not a switch: cudnn.enabled"),
        (("fp32_precision=" + "x" * 100_000,), BadInput, "^.{10,300}$"),
        (("x" * 100_000 + "=1",), UnknownName, "^.{10,300}$"),
        (("cudnn.benchmark=1", "cudnn.benchmark=0"), BadInput, "set twice"),
    ):
        with pytest.raises(error, match=said):
            files.settings(texts)
