"""One entry per library that can print what it ran: what to set, and how to read a line of it.

A tracer offers

    MARKERS                the bytes that its lines begin with; the first twelve distinguish them
    environment(...)       the variables to set, so that a command prints its lines
    parse(line)            one whole line, from its marker on and without its end: a record, or None
                           where the line does not keep to the grammar
    split(line)            a line that parse() gives no record of: the record of the call that it begins
                           with, and the program's text behind it without a line's end; or None
    cut(line)              a line, as bytes, cut to what repeats in it (a key, any hashable value), its
                           nanoseconds (None without a time) and its stamp (None without one); None for a
                           line that only parse() can read. The first line of each key goes to parse()
    derive(signature)      what can be derived of a call from its signature alone
"""

FOLDERS_ARE_ENTRIES = True
