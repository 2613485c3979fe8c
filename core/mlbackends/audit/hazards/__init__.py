"""Known misconfigurations: a file each (audit/hazard.py explains it), or a row of table/ (hazard_table.py)."""
