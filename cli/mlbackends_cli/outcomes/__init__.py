"""How the outcome of checks is written, one file a format: each has `outcome(outcome, page) -> str`."""
