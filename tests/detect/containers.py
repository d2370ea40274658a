"""Containers (see `weever_stream.detect.sections`) taken apart and put together again with right checksums."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["HEAD", "Container"]

HEAD = struct.Struct("<8sHHIQ")
ALIGN = 64


@dataclass
class Container:
    """The parts of a container."""

    magic: bytes
    version: int
    reserved: int
    contents: dict[str, Any]
    sections: list[tuple[str, bytes]]

    @classmethod
    def of(cls, content: bytes) -> Container:
        magic, version, reserved, _, length = HEAD.unpack_from(content)
        contents = json.loads(content[HEAD.size : HEAD.size + length])
        at, sections = HEAD.size + length, []
        for name, size, _ in contents.pop("sections"):
            sections.append((name, content[at : at + size]))
            at += size + -size % ALIGN
        return cls(magic, version, reserved, contents, sections)

    def body(self, name: str) -> bytes:
        """A section by its name."""
        return next(body for known, body in self.sections if known == name)

    def whole(self, contents: dict[str, Any] | None = None, **bodies: bytes) -> bytes:
        """The container, with another table of contents or other sections if they are given."""
        told = [(name, bodies.get(name, body)) for name, body in self.sections]
        listed = [[name, len(body), zlib.crc32(body)] for name, body in told]
        table = json.dumps({**self.contents, **(contents or {}), "sections": listed}).encode()
        table += b" " * (-(HEAD.size + len(table)) % ALIGN)
        return self.with_table(table) + b"".join(body + bytes(-len(body) % ALIGN) for _, body in told)

    def with_table(self, table: bytes) -> bytes:
        """A head with a right checksum over any table of contents."""
        return HEAD.pack(self.magic, self.version, self.reserved, zlib.crc32(table), len(table)) + table

    def forged(self, body: bytes) -> Iterator[bytes]:
        """The container with a body in place of each of its sections."""
        for at, (name, _) in enumerate(self.sections):
            yield replace(self, sections=[*self.sections[:at], (name, body), *self.sections[at + 1 :]]).whole()
