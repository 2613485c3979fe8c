"""Other people's attention, to compare with: one file each, which has it as `PEER`.

A file here imports nothing that computes: its program runs in a process of its own.
"""
