"""cuDNN's versions, which it tells as a number."""


def decoded(number: int) -> str:
    """Return a version as people write it: 91900 is 9.19.0, and 8907 is 8.9.7, as the digits changed at 9."""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"
