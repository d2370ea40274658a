"""Alerts: what is open is told to people once, brought up to date, and told again when it is over. See docs/alerts.md.

`desk` decides (pure, with a clock handed in), `targets` deliver, `dispatch` runs both beside the stream. What
was decided and what was delivered is one note beside the checkpoint, so that a crash forgets neither.
"""
