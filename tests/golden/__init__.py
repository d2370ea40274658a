"""What a release wrote, kept for all later ones to read: state, notes, dumps, rule files and output tables.

Each release has a folder, made once with its own code (`python -m tests.golden.make v0.1`) and never made again: a later
release that cannot read it has broken its users' checkpoints.
"""
