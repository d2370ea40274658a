"""What a judge says of an answer that is not the truth."""

from __future__ import annotations

__all__ = ["Wrong"]


class Wrong(AssertionError):
    """An answer that is not the truth: lost, duplicated or wrong."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind
