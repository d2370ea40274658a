"""Which files a check reads: paths, URIs, globs and folders, each file with its format.

Nothing is skipped in silence: a path that leads nowhere, a folder without data, a name with an unknown extension and a
mix of formats in one folder are errors. Files are sorted by name, so rows have the same numbers in every run. Names
that begin with `_` or `.` are bookkeeping (`_SUCCESS`, `.part-0.crc`), not data.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import unquote

from pyarrow import fs

from weever_stream.errors import DataError, did_you_mean
from weever_stream.storage import Location, locate, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DataFile", "Format", "find_files"]

Format: TypeAlias = Literal["csv", "parquet", "json", "arrow", "delta"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".parq": "parquet",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst", ".bz2", ".lz4")
_MAGIC: dict[bytes, Format] = {b"PAR1": "parquet", b"ARRO": "arrow"}
_KNOWN = "CSV, TSV, Parquet, JSON lines, Arrow and Delta are read, recognized by the file extension"
_PIPE = "pipes and devices are not read: columns are read more than once; write the rows to a file first"


@dataclass(frozen=True)
class DataFile:
    """One file (or Delta folder), its format, and the columns that its folders name (`state=CA/`)."""

    location: Location
    format: Format
    partition: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.location.shown

    @property
    def suffixes(self) -> list[str]:
        """The extensions of its name, in lower case."""
        return [suffix.lower() for suffix in PurePosixPath(self.location.path).suffixes]

    @property
    def compressed(self) -> bool:
        """Whether its name says so."""
        return bool(self.suffixes) and self.suffixes[-1] in _COMPRESSED


def find_files(given: Sequence[str | Path], kind: str | None = None) -> list[DataFile]:
    """The files that paths, URIs, globs and folders stand for; `kind` overrides their extensions."""
    if kind in ("files", None):
        forced: Format | None = None
    elif kind in get_args(Format):
        forced = kind  # type: ignore[assignment]
    else:
        raise DataError(
            f"a source of kind {kind} cannot be read by check",
            hint=did_you_mean(str(kind), get_args(Format)) or "one of files, " + ", ".join(get_args(Format)),
        )
    files = [file for path in given for file in _expanded(path, forced)]
    formats = {file.format for file in files}
    if len(formats) > 1:
        raise DataError(
            f"the data mixes formats: {', '.join(sorted(formats))}", hint="name the files of one format, with a glob"
        )
    return files


def _expanded(given: str | Path, forced: Format | None) -> list[DataFile]:
    place = locate(given)
    info = place.info()
    if info.type == fs.FileType.NotFound and glob.has_magic(place.path):
        matches = _matching(place)
        if not matches:
            raise DataError(f"no file matches {place}", hint="quote the pattern, and check it with ls")
        return [file for match in matches for file in _at(match, match.info(), forced)]
    if info.type == fs.FileType.NotFound:
        raise _missing(place, given)
    return _at(place, info, forced)


def _at(place: Location, info: Any, forced: Format | None) -> list[DataFile]:
    if info.type == fs.FileType.Directory:
        return _in_folder(place, forced)
    if info.type != fs.FileType.File:
        raise DataError(f"{place} is not a file", hint=_PIPE)
    return [DataFile(place, forced or _format(place))]


def _matching(pattern: Location) -> list[Location]:
    """What a pattern matches, sorted; names that begin with `_` or `.` only if the pattern says so."""
    if pattern.local:
        found = sorted(path for path in glob.glob(pattern.shown, recursive=True) if not _hidden(Path(path).name))
        return [locate(path) for path in found]
    parts = pattern.path.split("/")
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    top = pattern.cut(len(parts) - fixed)
    names = (name.split("/") for name in top.listed())
    below = {tuple(name[:depth]) for name in names for depth in range(1, len(name) + 1)}
    return [top.inside("/".join(name)) for name in sorted(below) if _matches(name, parts[fixed:])]


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns or not parts:
        return not patterns and not parts
    if patterns[0] == "**":
        return any(_matches(parts[at:], patterns[1:]) for at in range(len(parts)))
    return not _hidden(parts[0]) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def _missing(place: Location, given: str | Path) -> DataError:
    path = Path(place.path)
    if place.local and path.is_symlink():
        return DataError(f"{place} is a link that leads nowhere", hint="check what it should lead to")
    siblings = [one.name for one in path.parent.iterdir()] if place.local and path.parent.is_dir() else []
    hint = _PIPE if str(given) == "-" else did_you_mean(path.name, siblings) or "check the path"
    return DataError(f"there is no file {place}", hint=hint)


def _in_folder(folder: Location, forced: Format | None) -> list[DataFile]:
    is_table = folder.inside("_delta_log").info().type == fs.FileType.Directory
    if is_table:
        return [DataFile(folder, "delta")]
    if forced == "delta":
        raise DataError(f"{folder} is not a Delta table", hint="it has no folder _delta_log")
    files = []
    for name in sorted(folder.listed(), key=lambda name: name.split("/")):
        parts = name.split("/")
        if not any(_hidden(part) for part in parts):
            partition = dict(unquote(part).split("=", 1) for part in parts[:-1] if "=" in part)
            place = folder.inside(name)
            files.append(DataFile(place, forced or _format(place), partition))
    if not files:
        raise DataError(f"the folder {folder} holds no data", hint=_KNOWN)
    return files


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) and "=" not in name


def _format(place: Location) -> Format:
    suffixes = [suffix.lower() for suffix in PurePosixPath(place.path).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    if known := _SUFFIXES.get(suffixes[-1] if suffixes else ""):
        return known
    try:
        with place.system.open_input_stream(place.path) as file:
            start = file.read(4)
    except OSError as error:
        raise DataError(f"{place} cannot be read: {reason_of(error)}", hint="check the path and the rights") from None
    if known := _MAGIC.get(start):
        return known
    raise DataError(f"{place} has an unknown format: unrecognized file extension", hint=_KNOWN)
