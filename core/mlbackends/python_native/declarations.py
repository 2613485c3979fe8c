"""How a file in kernels/ says what it overrides.

A file kernels/operations/NAME.py offers its kernels as data:

    OVERRIDES = (
        Override(dsl="triton", op_symbol="bmm", dispatch_key="CUDA", condition=fits, run=outer),
    )

A file kernels/NAME.py holds an attention backend, whose class has an attribute `dsl`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Override(Struct, frozen=True, kw_only=True, eq=False):
    """A kernel that takes the place of an operation's native one.

    dsl: what it is written in, "native" for no DSL. op_symbol: the operation as torch names it, with
    its overload where it is not the default ("topk.values"). dispatch_key: such as "CUDA".
    condition: takes the arguments of a call and tells whether the kernel serves it; None for always.
    run: the kernel.
    """

    dsl: str
    op_symbol: str
    dispatch_key: str
    run: Any
    condition: Any = None
