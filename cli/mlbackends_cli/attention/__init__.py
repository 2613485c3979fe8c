"""The words, tables and charts of `backends sdpa`."""
