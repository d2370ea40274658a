"""Finding rules: the denial constraints that a table obeys."""
