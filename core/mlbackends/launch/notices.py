"""What a launch tells on its way, before anything is started."""

Notice = tuple[str, str]
"""A level ("INFO", "WARNING" or "ERROR") and a sentence."""


def information(sentence: str) -> Notice:
    """Return a notice that nobody need act on."""
    return "INFO", sentence


def warning(sentence: str) -> Notice:
    """Return a notice of what was asked for and is not so."""
    return "WARNING", sentence
