"""One file per way to look at a trace.

A view offers

Collector(**options)       with add(record) and result(), see mlbackends.tracing.viewing
"""
