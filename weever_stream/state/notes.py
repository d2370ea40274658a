"""Small JSON notes beside the checkpoint: what the job is, and how far it is. Replaced whole, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weever_stream.errors import OutputError, StateError
from weever_stream.state.store import opened

if TYPE_CHECKING:
    from weever_stream.state.store import StoreOptions

__all__ = ["Notes"]


class Notes:
    """JSON files of one folder."""

    def __init__(self, options: StoreOptions) -> None:
        self._local, self._fs, self._root = opened(options)

    def read(self, name: str) -> dict[str, Any] | None:
        """A note, or None where there is none."""
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}") as file:
                noted = json.loads(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            noted = None
        if not isinstance(noted, dict):
            raise StateError(f"{self._root}/{name} cannot be read", hint="restore it from a copy of the checkpoint")
        return noted

    def write(self, name: str, noted: dict[str, Any]) -> None:
        """Replaces a note."""
        content = json.dumps(noted, indent=1).encode()
        path = f"{self._root}/{name}"
        try:
            if not self._local:
                with self._fs.open_output_stream(path) as out:
                    out.write(content)
                return
            Path(self._root).mkdir(parents=True, exist_ok=True)
            beside = Path(f"{path}.{os.getpid()}.tmp")
            beside.write_bytes(content)
            beside.replace(path)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise OutputError(f"{path} could not be written: {reason}", hint="check its folder and space") from None
