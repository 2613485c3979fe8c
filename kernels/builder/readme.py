"""The README for package indexes: hatchling's metadata hook.

An index shows neither pictures of this repository nor its other files: pictures are left out, links to files
are their text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def for_an_index(text: str) -> str:
    """Return the README without pictures, and without links that lead nowhere elsewhere."""
    text = re.sub(r"^!\[[^\]]*\]\((?!https:)[^)]*\)\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https:|#)[^)]*\)", r"\1", text)


class ReadmeHook(MetadataHookInterface):
    """Gives the project its long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text that an index shows."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text)}
