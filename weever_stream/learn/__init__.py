"""Keeping what was discovered true while the data changes."""
