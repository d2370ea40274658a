"""Recognizes URIs of object stores where only a local file can be named. Loads nothing heavy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCAL_HINT", "remote_uri"]

LOCAL_HINT = "rule files and outputs are local files; copy it from or to the store with the store's own tools"
_STORE = re.compile(r"(s3[an]?|gc?s|abfss?|wasbs?|az|adl|hdfs|viewfs|dbfs|https?|ftp):/+", re.IGNORECASE)


def remote_uri(path: Path) -> str | None:
    """The URI that was given as a path, which has lost one of its slashes; None if it is a path.

    >>> from pathlib import Path
    >>> remote_uri(Path("s3://bucket/rules.yaml")), remote_uri(Path("rules.yaml"))
    ('s3://bucket/rules.yaml', None)
    """
    text = str(path)
    found = _STORE.match(text)
    return f"{found[1]}://{text[found.end() :]}" if found else None
