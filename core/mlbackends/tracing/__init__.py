"""Traces of MKL and oneDNN: capturing, reading, adding up."""

EXPORTS = {
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "perfetto": (".json", ".perfetto-trace.json", ".trace"),
}
"""The formats that hold every record, and the ends of file names that mean them; see `exporting`."""
