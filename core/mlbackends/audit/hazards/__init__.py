"""Known misconfigurations, one file each; `mlbackends.audit.hazard` tells what a file has to offer."""
