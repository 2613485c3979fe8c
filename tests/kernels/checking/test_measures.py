"""What speeds are held to: each measure says what it is, and computes what it says."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mlbackends_kernels.checking import measures, serving
from mlbackends_kernels.checking.measures import Threads, compiled

if TYPE_CHECKING:
    from collections.abc import Callable

MEASURES = [measures.product, measures.copy, measures.peak, measures.bandwidth]


@pytest.mark.parametrize("made", MEASURES, ids=lambda made: made.__name__)
def test_a_measure_says_how_much_it_does_and_how(made: Callable[[], serving.Prepared]) -> None:
    measure = made()
    measure.call()
    much = measure.details.get("flops") or measure.details["bytes"]

    assert int(much) > 10**7
    assert measure.details["by"]


def test_reading_adds_up_all_that_is_there() -> None:
    read = compiled("read", ctypes.c_void_p, ctypes.c_int64)
    if read is None:
        pytest.skip("built without the library")
    numbers = np.arange(4 * 8 * 5, dtype="uint64")

    assert read(numbers.ctypes.data, numbers.nbytes) == numbers.sum()
    assert read(numbers.ctypes.data, 0) == 0


def test_a_function_that_the_library_lacks_is_none() -> None:
    assert compiled("nothing_of_the_kind") is None


def test_every_thread_takes_part() -> None:
    threads = Threads()
    seen: list[int] = []
    threads.run(seen.append)

    assert sorted(seen) == list(range(threads.count))
