"""Small JSON notes beside the checkpoint: what the job is, and how far it is. Replaced whole, or not at all.

A local note is forced to the disk before it gets its name. HDFS shows a file while it is written and renames to free
names only: there a note is written as `<name>.new`, which then takes the place of the old one; a reader that finds no
old one takes the new. One process writes, the holder of the checkpoint's lease.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weever_stream.errors import OutputError, StateError
from weever_stream.state.store import opened, shows_halves, write_whole

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
            content = self._content(name)
            if content is None:
                return None
            noted = json.loads(content)
        except (OSError, ValueError):
            noted = None
        if not isinstance(noted, dict):
            raise StateError(f"{self._root}/{name} cannot be read", hint="restore it from a copy of the checkpoint")
        return noted

    def _content(self, name: str) -> bytes | None:
        for there in (name, f"{name}.new") if shows_halves(self._fs) else (name,):
            try:
                with self._fs.open_input_stream(f"{self._root}/{there}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                continue
        return None

    def write(self, name: str, noted: dict[str, Any], *, compact: bool = False) -> None:
        """Replaces a note. `compact`: on one line, for one that may be long."""
        content = json.dumps(noted, indent=None if compact else 1).encode()
        path = f"{self._root}/{name}"
        try:
            if self._local:
                write_whole(Path(path), [content])
            elif shows_halves(self._fs):
                self._fs.create_dir(self._root, recursive=True)
                self._write_remote(f"{path}.new", content)
                self._fs.move(f"{path}.new", path)
            else:
                self._write_remote(path, content)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise OutputError(f"{path} could not be written: {reason}", hint="check its folder and space") from None

    def _write_remote(self, path: str, content: bytes) -> None:
        with self._fs.open_output_stream(path) as out:
            out.write(content)
