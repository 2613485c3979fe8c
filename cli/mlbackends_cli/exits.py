"""The exit codes of every command, and what each means; the man pages print this table."""

YES = 0
NO = 1
USAGE = 2
UNKNOWN = 3
BUG = 70
INTERRUPTED = 130
CLOSED_PIPE = 141

MEANINGS = {
    YES: "The report was made; the answer is yes.",
    NO: "The answer is no: a requirement is not met, or the value that was asked for is not there.",
    USAGE: "Asked wrongly: an unknown name, a bad option or a file that cannot be read as what it should be.",
    UNKNOWN: "Could not tell: a probe failed, and --strict or --get needed its answer.",
    BUG: "A bug in backends; the message says where the traceback was written.",
    INTERRUPTED: "Interrupted from the keyboard.",
    CLOSED_PIPE: "The reader of the output closed it before the end.",
}
