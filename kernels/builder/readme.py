"""The README for package indexes: hatchling's metadata hook.

An index cannot show this repository's pictures and files, so pictures are removed and links to files become
their text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def for_an_index(text: str) -> str:
    """Return the README without the repository's pictures and relative links."""
    text = re.sub(r"^!\[[^\]]*\]\((?!https:)[^)]*\)\n+", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https:|#)[^)]*\)", r"\1", text)


class ReadmeHook(MetadataHookInterface):
    """Sets the project's long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text for indexes."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text)}
