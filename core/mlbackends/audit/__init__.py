"""Judging reports: known hazards, declared policies, differences. Pure functions of reports, all of them."""
