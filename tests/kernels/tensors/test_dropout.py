"""Which weights are kept."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from mlbackends_kernels.tensors import dropout  # noqa: E402


def words(seed: int, *counter: int) -> list[int]:
    arrays = (np.full(1, word, np.uint64) for word in counter)
    return [int(word[0]) for word in dropout.philox(seed, *arrays)]


@pytest.mark.parametrize(
    ("seed", "counter", "wanted"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFFFFFFFFFF, (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0x408F276D, 0x41C83B0E,
         0xA20BC7C6, 0x6D5451FD)),
        (0x299F31D0A4093822, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xD16CFE09, 0x94FDCCEB,
         0x5001E420, 0x24126EA1)),
    ],
)  # fmt: skip
def test_the_words_are_those_that_its_authors_publish(
    seed: int, counter: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    """The known answers of Random123 for philox4x32-10."""
    assert words(seed, *counter) == list(wanted)


def test_a_row_keeps_the_same_keys_however_the_rows_are_cut() -> None:
    whole = dropout.keep_mask(3, 0.4, (2, 3), range(7), 10)
    cut = [dropout.keep_mask(3, 0.4, (2, 3), range(at, at + 1), 10) for at in range(7)]
    assert whole.shape == (2, 3, 7, 10)
    assert np.array_equal(whole, np.concatenate(cut, axis=-2))


def test_about_the_right_share_is_kept_and_nothing_or_all_at_the_ends() -> None:
    assert abs(dropout.keep_mask(1, 0.3, (4,), range(200), 200).mean() - 0.7) < 0.01
    assert dropout.keep_mask(1, 0.0, (), range(20), 20).all()
    assert not dropout.keep_mask(1, 1.0, (), range(20), 20).any()


@pytest.mark.parametrize(("leading", "rows", "keys"), [((2, 3), 0, 5), ((2, 3), 4, 0), ((0, 3), 4, 5)])
def test_of_no_weight_none_is_kept(leading: tuple[int, ...], rows: int, keys: int) -> None:
    assert dropout.keep_mask(1, 0.5, leading, range(rows), keys).shape == (*leading, rows, keys)
