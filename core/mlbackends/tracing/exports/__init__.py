"""One file per format that other programs read.

A format offers

    ENDINGS                    the ends of file names that mean it, such as (".csv",)
    write(records, file)       writes all records to a file of bytes, as they come; returns how many
"""
