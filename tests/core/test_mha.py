"""The switch of multi-head attention's fast path."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends import mha


@pytest.mark.parametrize("value", [1, 0, None, "off", []], ids=repr)
def test_anything_but_a_bool_is_refused(value: Any) -> None:
    with pytest.raises(RuntimeError, match=r"mha[.]fastpath_enabled expects a bool"):
        mha.set_fastpath_enabled(value)
    assert mha.get_fastpath_enabled() is True
