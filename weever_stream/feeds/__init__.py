"""Feeds: every source of changes as one kind of streaming DataFrame (see `changes`)."""
