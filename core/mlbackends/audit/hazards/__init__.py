"""Known misconfigurations: one file each (audit/hazard.py), or a row in table/ (hazard_table.py)."""
