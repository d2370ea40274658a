"""Golden texts: what a user sees, word for word. `WEEVER_UPDATE_GOLDEN=1 pytest` writes them anew; read the diff."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, seen: str) -> None:
    """Compares with the golden file of that name, or writes it when asked to."""
    path = GOLDEN / name
    if os.environ.get("WEEVER_UPDATE_GOLDEN"):
        path.write_text(seen, "utf-8")
    assert path.read_text("utf-8") == seen
