"""How much there is to compute: counted one by one for small problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.problem_size import (
    flops,
    free_bytes,
    gradient_bytes,
    least_bytes,
    needed_bytes,
    too_large,
    visible_scores,
)

if TYPE_CHECKING:
    from pathlib import Path

SIZES = st.integers(0, 9)


@given(SIZES, SIZES, st.sampled_from([None, False, True]))
def test_the_scores_that_a_causal_mask_shows(rows: int, columns: int, corner: bool | None) -> None:
    query, key = TensorSpec((rows, 4), "float32"), TensorSpec((columns, 4), "float32")
    problem = AttentionProblem(
        query=query, key=key, value=key, is_causal=corner is not None, lower_right=bool(corner)
    )
    offset = columns - rows if corner else 0
    seen = [
        (row, column)
        for row in range(rows)
        for column in range(columns)
        if corner is None or column <= row + offset
    ]

    assert visible_scores(problem) == len(seen)


SIDES = st.integers(-1, 12)


@given(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=3), st.booleans(), SIDES, SIDES)
def test_the_scores_in_the_windows_of_packed_sequences(
    sizes: list[tuple[int, int]], lower_right: bool, left: int, right: int
) -> None:
    rows, keys = (tuple(lengths) for lengths in zip(*sizes, strict=True))
    query, key = (TensorSpec((1, 2, sum(lengths), 4), "float32") for lengths in (rows, keys))
    limited = (left, right) != (-1, -1)
    problem = AttentionProblem(
        query=query,
        key=key,
        value=key,
        query_lengths=rows,
        key_lengths=keys,
        window=(left, right),
        lower_right=limited and lower_right,
    )
    seen = [
        (row, column)
        for length, count in sizes
        for row in range(length)
        for column in range(count)
        for own in [row + (count - length if problem.lower_right else 0)]
        if (left < 0 or column >= own - left) and (right < 0 or column <= own + right)
    ]

    assert visible_scores(problem) == len(seen)
    assert flops(problem) == 2 * 2 * len(seen) * 8


def test_of_pages_the_keys_that_count_are_moved() -> None:
    (wording,) = parse("--shape 2,4,1,8 --page-size 16 --key-lengths 3,20 --sinks")
    problem = wording.problem(Device("cpu", 0))

    assert flops(problem) == 2 * 4 * 23 * 16
    assert least_bytes(problem) == 4 * (2 * 4 * 8 * 2 + 23 * 4 * 16 + 4 + 4)


def test_operations_are_of_both_products_and_all_heads() -> None:
    query, key = TensorSpec((2, 8, 16, 32), "float32"), TensorSpec((2, 2, 24, 32), "float32")
    value = TensorSpec((2, 2, 24, 8), "float32")
    problem = AttentionProblem(query=query, key=key, value=value, enable_gqa=True)

    assert flops(problem) == 2 * 8 * 16 * 24 * 2 * (32 + 8)


def test_a_backward_pass_has_five_products() -> None:
    (forward, backward) = (
        parse(f"--shape 2,4,16,32 --causal{words}")[0].problem(Device("cpu", 0))
        for words in ("", " --backward")
    )
    (wide,) = parse("--shape 1,1,8,4 --kv-len 6 --value-dim 16 --backward")

    assert 2 * flops(backward) == 5 * flops(forward)
    assert flops(wide.problem(Device("cpu", 0))) == 2 * 8 * 6 * (3 * 4 + 2 * 16)


def test_what_a_backward_pass_must_move() -> None:
    words = "--shape 1,1,8,4 --kv-len 6 --dtype bfloat16 --mask 8,6 --backward"
    plain, masked = (parse(words + more)[0].problem(Device("cpu", 0)) for more in ("", " --mask-gradient"))
    tensors = 2 * (8 * 4 + 2 * 6 * 4)

    assert gradient_bytes(plain) == tensors
    assert gradient_bytes(masked) == tensors + 2 * 8 * 6
    # the inputs, the result and its gradient, a float32 for each row, and the gradients
    assert least_bytes(plain) == tensors + 2 * 48 + 2 * 64 + 4 * 8 + gradient_bytes(plain)
    assert needed_bytes(masked) > needed_bytes(replace(masked, mask=None))


def test_no_more_memory_is_free_than_the_control_group_has(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/job/memory.max": "65536\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())

    assert free_bytes(Host(str(tmp_path))) == 65536
    assert free_bytes() > 65536


def test_what_neither_memory_nor_the_folder_holds_is_not_begun() -> None:
    (wording,) = parse("--shape 1,8,1024,64")  # 8 MiB with the result
    problem = wording.problem(Device("cpu", 0))

    assert too_large(problem, 1 << 40, 1 << 40, "/tmp") == ""
    assert "0.0 GiB are free" in too_large(problem, 1 << 20, 1 << 40, "/tmp")
    assert too_large(problem, 1 << 40, 1 << 20, "/tmp") == (
        "a check writes about 8.0 MiB to /tmp, and 1.0 MiB are free there; set TMPDIR to another folder"
    )


def test_one_head_of_a_long_problem_on_a_device_may_be_more_than_is_usually_compared() -> None:
    (wording,) = parse("--shape 1,8,32768,128 --dtype bfloat16")
    problem = wording.problem(Device("cuda", 0, name="NVIDIA H200"))
    (alone,) = parse("--shape 1,1,32768,128 --dtype bfloat16")

    assert flops(alone.problem(problem.device)) > 10**11
    assert needed_bytes(alone.problem(Device("cpu", 0))) < needed_bytes(problem) < 2**34
