"""What probes stand on: the host, the search for libraries, the child that opens them, the survey."""
