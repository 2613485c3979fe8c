"""One file per library that can tell what it ran: what to set, and how to read a line of it.

A tracer offers

    MARKERS                    the bytes that its lines begin with
    environment(...)           the variables to set, so that a command prints its lines
    parse(line)                one whole line, from its marker on and without ending: a record, or
                               None where the line does not keep to the grammar
    shorten(line)              the same for bytes, quickly: what repeats and how long it took; None
                               where only parse() can tell
    derive(signature)          what can be told of a call from its signature alone
"""
