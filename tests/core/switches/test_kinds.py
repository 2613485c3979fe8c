"""What each kind of switch takes, and how it is written and read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlbackends.switches.kinds import (
    Boolean,
    Choice,
    Count,
    Kibibytes,
    Kind,
    Permutation,
    Reduction,
    Text,
    ThreadCounts,
    Workspace,
)
from mlbackends.switches.table import SWITCHES

WORDS = Choice("auto", "cudnn", "native", aliases={"default": "auto"})
#: One switch of each kind: the others share its kind.
OF_EACH_KIND = list({flag.kind: name for name, flag in SWITCHES.items()}.values())
ANY_KIND = list({type(flag.kind): flag.kind for flag in SWITCHES.values()}.values())
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.one_of(st.booleans(), st.integers()), max_size=6),
    st.tuples(st.booleans(), st.booleans()),
    st.builds(object),
)


@pytest.mark.parametrize("name", OF_EACH_KIND)
@given(st.data())
def test_what_is_taken_comes_back_from_its_text(name: str, data: st.DataObject) -> None:
    kind = SWITCHES[name].kind
    value = data.draw(values_of(kind))

    taken = kind.checked(name, value)

    assert kind.checked(name, taken) == taken
    assert kind.parsed(kind.written(taken)) == taken


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    """Return values that a kind takes."""
    if isinstance(kind, Reduction):
        pairs = st.tuples(st.booleans(), st.booleans()).filter(lambda pair: pair != (True, False))
        return st.one_of(st.booleans(), pairs, pairs.map(list), st.tuples(st.booleans()))
    if isinstance(kind, Boolean):
        return st.booleans()
    if isinstance(kind, Workspace | Kibibytes):
        return st.one_of(st.none(), st.integers(0, 2**53 - 1).map(lambda number: number * 1024))
    if isinstance(kind, Count):
        return st.integers(kind.lowest, 2**63 - 1)
    if isinstance(kind, Permutation):
        return st.permutations(range(len(kind.words))).map(tuple)
    if isinstance(kind, Choice):
        return st.sampled_from([*kind.words, *kind.aliases])
    assert isinstance(kind, Text)
    if isinstance(kind, ThreadCounts):
        return st.lists(st.integers(1, 10**6).map(str), min_size=1).map(",".join)
    return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.mark.parametrize("kind", ANY_KIND, ids=lambda kind: type(kind).__name__)
@given(HOSTILE)
def test_a_value_is_taken_or_refused_with_one_line_that_names_the_switch(kind: Kind, value: object) -> None:
    try:
        kind.checked("some.switch", value)
    except (RuntimeError, TypeError, ValueError) as error:
        line = str(error)
        assert line
        assert "\n" not in line.replace(str(value), "")


@pytest.mark.parametrize("kind", ANY_KIND, ids=lambda kind: type(kind).__name__)
@given(st.text())
def test_a_text_is_read_or_refused_with_a_value_error(kind: Kind, text: str) -> None:
    try:
        value = kind.parsed(text)
    except ValueError:
        return
    assume(value is not None)
    assert kind.parsed(kind.written(value)) == value


@pytest.mark.parametrize("value", [1, 0, None, "1", "True", 1.0, (), object])
def test_a_bool_is_a_real_bool(value: object) -> None:
    with pytest.raises(RuntimeError, match=r"cudnn[.]enabled expects a bool, but got"):
        Boolean().checked("cudnn.enabled", value)


@pytest.mark.parametrize("text", ["", "true", "True", "2", " 1", "1 ", "01", "yes", "on", "\u0661"])
def test_a_bool_is_0_or_1_in_a_variable(text: str) -> None:
    with pytest.raises(ValueError, match="valid values are 0 or 1"):
        Boolean().parsed(text)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (True, (True, True)),
        (False, (False, True)),
        ((True,), (True, True)),
        ([False], (False, True)),
        ((False, False), (False, False)),
        ([True, True], (True, True)),
    ],
)
def test_a_reduction_is_kept_as_a_pair(value: object, kept: tuple[bool, bool]) -> None:
    assert Reduction().checked("reduction", value) == kept


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ((), TypeError, "at least one boolean"),
        ((True, True, True), TypeError, "at most two"),
        ((1,), TypeError, "allow_reduced_precision, but got int"),
        ((True, None), TypeError, "allow_splitk, but got NoneType"),
        (1, TypeError, "a bool or a tuple/list of bools, but got int"),
        ("1", TypeError, "but got str"),
        ((True, False), RuntimeError, "allow_splitk=False is not supported"),
    ],
)
def test_a_wrong_reduction_is_told_apart(value: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Reduction().checked("reduction", value)


@pytest.mark.parametrize("text", ["1,0", "", ",", "1,1,1", "1,", "true"])
def test_a_wrong_reduction_in_a_variable_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"0 or 1|at most two|not supported"):
        Reduction().parsed(text)


def test_an_alias_becomes_what_it_stands_for() -> None:
    assert WORDS.checked("cudnn.depthwise_kernel", "default") == "auto"
    assert WORDS.parsed("default") == "auto"


@pytest.mark.parametrize(("word", "meant"), [("AUTO", "auto"), ("cudn", "cudnn"), ("natve", "native")])
def test_another_word_gets_the_list_and_the_nearest(word: str, meant: str) -> None:
    with pytest.raises(RuntimeError, match=f"Choose from: auto, cudnn.*did you mean '{meant}'"):
        WORDS.checked("cudnn.depthwise_kernel", word)
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        WORDS.parsed(word)


def test_the_opposite_of_a_word_is_not_suggested_for_it() -> None:
    with pytest.raises(ValueError, match=r"^it is one of none, ieee, tf32$"):
        Choice("none", "ieee", "tf32").parsed("fp32")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, RuntimeError),
        (2**63, RuntimeError),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
    ],
)
def test_a_count_is_a_whole_number_that_fits(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="limit"):
        Count().checked("limit", value)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "0x10", "9" * 19, "9" * 5000, "\u0663"])
def test_a_count_is_decimal_digits_in_a_variable(text: str) -> None:
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 2\*\*63 - 1"):
        Count().parsed(text)


@pytest.mark.parametrize(
    "value", [(), (0, 1), (0, 0, 1), (0, 1, 2, 3), (0, 1, 9), ("a", "b", "c"), [2.0, 1, 0]]
)
def test_an_order_names_each_once(value: object) -> None:
    with pytest.raises(RuntimeError, match="must name each of 0 to 2 once"):
        Permutation("a", "b", "c").checked("order", value)


@pytest.mark.parametrize(
    ("text", "size"),
    [(":4096:2:16:8", 8320 << 10), (":128:8:64:16:32:32", 3 << 20), (":0:0", 0), (":1:1", 1024)],
)
def test_a_workspace_is_buffers_in_its_variable(text: str, size: int) -> None:
    assert Workspace().parsed(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "4096:8",
        ":4096",
        ":4096:",
        ":4096:8:",
        ":-1:8",
        ":4096:x",
        "::",
        f":{'9' * 15}:{'9' * 15}",
    ],
)
def test_a_malformed_workspace_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="valid value"):
        Workspace().parsed(text)


@given(st.integers(0, 2**63 - 1))
def test_a_workspace_is_written_no_smaller_and_less_than_a_kibibyte_larger(size: int) -> None:
    for kind in (Workspace(), Kibibytes()):
        again = kind.parsed(kind.written(size))
        assert isinstance(again, int)
        assert size <= again < size + 1024


def test_a_text_holds_no_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        Text().parsed("a\0b")
    with pytest.raises(TypeError, match="got bytes"):
        Text().checked("mkl.verbose_level", b"1")


def test_a_type_is_named_with_its_module_where_python_has_the_same_name() -> None:
    stranger = type("bool", (), {"__module__": "numpy"})

    with pytest.raises(RuntimeError, match=r"expects a bool, but got numpy\.bool$"):
        Boolean().checked("cudnn.benchmark", stranger())
