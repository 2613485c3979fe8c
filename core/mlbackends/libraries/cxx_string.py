"""Call a C++ function that takes nothing and returns a std::string, without a compiler."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


def returned_string(opened: ctypes.CDLL, function: str) -> str | None:
    """Return what the function returns; None where the rules of such a call are not known.

    function: the name without parameters as it is mangled, "_ZN2at18get_mkldnn_version". Such a
    result is written to an address that the caller passes: on x86-64, outside Windows, in the
    register of the first argument, so a pointer argument is the same call. AArch64 has a register
    of its own for it, which ctypes cannot set. The string is leaked: the process is short-lived.
    Source: System V ABI for x86-64, 3.2.3; libstdc++'s two string layouts.
    """
    import ctypes

    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 2**32:
        return None
    for name, is_new in ((f"{function}B5cxx11Ev", True), (f"{function}Ev", False)):
        call = getattr(opened, name, None)
        if call is None:
            continue
        # New: address, length, 16 bytes. Old, before GCC 5: the address of text that ends in NUL.
        result = (ctypes.c_uint64 * 8)()
        call.restype = None
        call.argtypes = [ctypes.c_void_p]
        call(result)
        if not result[0]:
            return None
        length = min(result[1], 4096) if is_new else -1
        return ctypes.string_at(result[0], length).decode(errors="replace")
    return None
