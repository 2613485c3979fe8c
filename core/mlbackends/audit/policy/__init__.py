"""Policies: what a machine must be, written in TOML and checked against a report.

No code from a policy is ever run, and nothing in it takes longer than its size allows.
"""
