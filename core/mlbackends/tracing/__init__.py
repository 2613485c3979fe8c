"""Traces of MKL and oneDNN: capturing, reading, adding up."""

#: The tracers, by the names of their libraries for people.
LIBRARIES = {"mkl": "MKL", "onednn": "oneDNN"}
#: The formats that hold every record, and the ends of file names that mean them; see `exporting`.
EXPORTS = {
    "csv": (".csv",),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "perfetto": (".json", ".perfetto-trace.json", ".trace"),
}
