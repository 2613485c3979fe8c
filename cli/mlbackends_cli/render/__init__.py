"""One file for each output format. Each has `report(report, page) -> str`; none asks a question."""
