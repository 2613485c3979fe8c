"""Whether installed libraries compute right numbers: operations against a more precise reference.

`programs/` runs in the inspected environment, a process for each library; it imports nothing of ours.
"""
