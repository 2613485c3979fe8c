"""One file per library that can tell what it ran: what to set, and how to read a line of it.

A tracer offers

    MARKERS                the bytes that its lines begin with
    environment(...)       the variables to set, so that a command prints its lines
    parse(line)            one whole line, from its marker on and without ending: a record, or None
                           where the line does not keep to the grammar
    split(line)            a line that parse() gives no record of: the record of the call that it begins
                           with, and the program's text that goes on without a line's end; or None
    Shortener              a class. shorten(line) cuts a line, as bytes, to what repeats in it (a key,
                           whatever can be one) and its nanoseconds, or None without a time; None for
                           a line that only parse() can tell. take(lines, takers) does so with many:
                           it gives each time to the taker of its key, and returns the places of the
                           lines that have none. Both may be wrong where decimal commas are: whoever
                           meets a key for the first time asks parse()
                           timed(line) cuts a line to a key, nanoseconds and the stamp, None where
                           parse() must tell. front(key) is what stands before the sizes in a key
    derive(signature)      what can be told of a call from its signature alone
"""

FOLDERS_ARE_ENTRIES = True
