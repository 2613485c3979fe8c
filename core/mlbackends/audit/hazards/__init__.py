"""Known misconfigurations, one file each: what a file has to offer stands in `mlbackends.audit.hazard`."""
