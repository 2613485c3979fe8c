"""Attention of other projects, to compare with: each file defines `PEERS`.

The files import nothing that computes; their programs run in separate processes.
"""
