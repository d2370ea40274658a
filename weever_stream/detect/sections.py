"""One container for everything that is saved: a head, a table of contents in JSON, and raw sections with checksums.

    magic | version | reserved | CRC of the table of contents | its length | table of contents | sections

The table of contents names every section with its length and CRC-32, so bytes that were torn, changed or lengthened
are refused with the name of the section. Every section begins at a multiple of 64 bytes, after blanks that are checked
too: arrays are read in place, mapped or not, and the kernels need them aligned. Nothing but data is in here: no pickle.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weever_stream.errors import OutputError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Section = bytes | memoryview

__all__ = ["Format", "ipc", "pieces", "read_container", "read_ipc", "unpacked", "write_container"]

_HEAD = struct.Struct("<8sHHIQ")
_ALIGN = 64
_BLANK = bytes(_ALIGN)


@dataclass(frozen=True)
class Format:
    """A kind of content: what it is called in errors, how it begins, and the newest version that is known."""

    magic: bytes
    version: int
    what: str
    hint: str


def pieces(form: Format, contents: Mapping[str, Any], sections: Sequence[tuple[str, Section]]) -> Iterator[Section]:
    """The container, piece by piece, to be written one after the other."""
    listed = [[name, len(body), zlib.crc32(body)] for name, body in sections]
    table = json.dumps({**contents, "sections": listed}).encode()
    table += b" " * (-(len(table) + _HEAD.size) % _ALIGN)
    yield _HEAD.pack(form.magic, form.version, 0, zlib.crc32(table), len(table)) + table
    for _, body in sections:
        yield body
        if len(body) % _ALIGN:
            yield _BLANK[: -len(body) % _ALIGN]


def unpacked(
    form: Format, name: str, content: Section, *, trusted: bool = False
) -> tuple[dict[str, Any], list[memoryview]]:
    """The table of contents and the sections, which are views of the content.

    `trusted`: the sections were looked at before, or come straight from memory; only the head is.
    """
    if len(content) < _HEAD.size or bytes(content[:8]) != form.magic:
        raise StateError(f"{name} is not {form.what}", hint=form.hint)
    _, version, reserved, check, length = _HEAD.unpack_from(content)
    if version < 1 or reserved:
        raise StateError(f"{name} is torn or was changed: no release wrote such a head", hint=form.hint)
    if version > form.version:
        raise StateError(
            f"{name} is of version {version}, and this release reads up to {form.version}", hint="use a newer release"
        )
    table = bytes(content[_HEAD.size : _HEAD.size + length])
    if len(table) < length or zlib.crc32(table) != check:
        raise StateError(f"{name} is torn or was changed: its table of contents does not check", hint=form.hint)
    contents: dict[str, Any] = json.loads(table)
    return contents, list(_sections(form, name, memoryview(content), _HEAD.size + length, contents, trusted))


def _sections(
    form: Format, path: str, content: memoryview, at: int, contents: dict[str, Any], trusted: bool
) -> Iterator[memoryview]:
    if at % _ALIGN:
        raise StateError(f"{path} is torn or was changed: its sections are not aligned", hint=form.hint)
    for name, size, check in contents["sections"]:
        body, padding = content[at : at + size], -size % _ALIGN
        blank = content[at + size : at + size + padding]
        if len(body) < size or not (trusted or (zlib.crc32(body) == check and blank == _BLANK[:padding])):
            raise StateError(f"{path} is torn or was changed: section {name!r} does not check", hint=form.hint)
        yield body
        at += size + padding
    if at != len(content):
        raise StateError(f"{path} is torn or was changed: trailing bytes after the last section", hint=form.hint)


def ipc(table: pa.Table | pa.RecordBatch) -> memoryview:
    """Rows as a section, in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return memoryview(sink.getvalue())


def read_ipc(content: Section) -> pa.Table:
    """The rows of a section; a view where it can be."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        return reader.read_all()


def write_container(
    path: Path, form: Format, contents: Mapping[str, Any], sections: Sequence[tuple[str, Section]]
) -> None:
    """Writes a container beside its file and renames it: whole or absent. A link stays a link, a device what it is."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a file", hint="name a file to write the state to")
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            for piece in pieces(form, contents, sections):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise OutputError(f"{path} could not be written: {error.strerror}", hint="check its folder and space") from None


def read_container(path: Path, form: Format) -> tuple[dict[str, Any], list[memoryview]]:
    """The table of contents and the sections of a file."""
    try:
        with path.open("rb") as file:
            content = memoryview(pa.allocate_buffer(os.fstat(file.fileno()).st_size))  # Arrow aligns it to 64 bytes
            read = file.readinto(content)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", hint=form.hint) from None
    return unpacked(form, str(path), content[:read].toreadonly())
