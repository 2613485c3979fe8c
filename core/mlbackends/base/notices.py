"""What a command reports before it starts a program."""

#: A level ("INFO", "WARNING" or "ERROR") and a sentence.
Notice = tuple[str, str]


def information(sentence: str) -> Notice:
    """Return a notice that needs no action."""
    return "INFO", sentence


def warning(sentence: str) -> Notice:
    """Return a notice that something requested is not done."""
    return "WARNING", sentence
