"""Policies: what somebody expects of a machine, written in TOML and held to a report.

No code from a policy is ever run, and nothing in it takes longer than its size allows.
"""
