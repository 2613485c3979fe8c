"""The auxiliary vector: what the kernel told a process at its start, by /proc/self/auxv.

Source: getauxval(3); the bits stand in each architecture's <asm/hwcap.h> or <asm/cputable.h>.
"""

import struct

from mlbackends.host.host import Host

PAGE_SIZE = 6
HWCAP = 16
HWCAP2 = 26

_LAYOUTS = ("<Q", ">Q", "<I", ">I")
_HIGHEST_KEY = 4096


def auxiliary_vector(host: Host) -> dict[int, int]:
    """Return the entries by number; {} where the file is missing or makes no sense.

    A recorded machine may have another byte order and word length than ours: the layout in which
    every key is small and the last one is 0 is the right one.
    """
    data = host.read_bytes("/proc/self/auxv", 8192)
    for layout in _LAYOUTS:
        pair = struct.Struct(f"{layout[0]}2{layout[1]}")
        whole = data[: len(data) // pair.size * pair.size]
        entries = list(pair.iter_unpack(whole))
        keys = [key for key, _ in entries]
        if 0 not in keys or entries[keys.index(0)][1] != 0:
            continue
        entries = entries[: keys.index(0)]
        if entries and all(0 < key < _HIGHEST_KEY for key, _ in entries):
            return dict(entries)
    return {}
