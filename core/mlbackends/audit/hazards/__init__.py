"""Known misconfigurations: rows in table/ (hazard_table.py), some with a function of their name here."""
