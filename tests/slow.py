"""Write tests/slow.txt: the tests that CI runs and a plain `pytest` leaves out.

    pytest -m 'slow or not slow' --junitxml=RUN.xml
    python tests/slow.py RUN.xml

A test is slow where all its parameters together take longer than LIMIT in that run.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET  # what pytest wrote a moment ago

#: Seconds of a test function, on a two-core virtual machine.
LIMIT = 0.5


def main(run: str) -> None:
    """Write the names of the slow tests of a run, sorted."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(run).iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        seconds[f"{path}::{case.get('name', '').partition('[')[0]}"] += float(case.get("time", 0))
    slow = sorted(name for name, taken in seconds.items() if taken > LIMIT)
    Path(__file__).with_suffix(".txt").write_text("\n".join(slow) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
