"""The rule language: denial constraints written in a file or in Python, one normal form, checked types."""
