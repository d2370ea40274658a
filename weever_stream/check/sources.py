"""Which files a check reads: paths, globs and folders, each file with its format.

Nothing is skipped in silence: a path that leads nowhere, a folder without data, a name that tells no format and a mix
of formats in one folder are errors. Files come sorted by name, so rows have the same numbers in every run. Names that
begin with `_` or `.` are bookkeeping (`_SUCCESS`, `.part-0.crc`) and no data.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from urllib.parse import unquote

from weever_stream.errors import DataError, did_you_mean

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
_KNOWN = "CSV, TSV, Parquet, JSON lines, Arrow and Delta are read; the name's ending tells which"
_PIPE = "pipes and devices are not read: columns are read more than once; write the rows to a file first"


@dataclass(frozen=True)
class DataFile:
    """One file (or Delta folder), its format, and the columns that its folders name (`state=CA/`)."""

    path: Path
    format: Format
    partition: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def compressed(self) -> bool:
        """Whether its name says so."""
        return self.path.suffix.lower() in _COMPRESSED


def find_files(given: Sequence[str | Path], kind: str | None = None) -> list[DataFile]:
    """The files that paths, globs and folders stand for; `kind` overrides what their names tell."""
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
    path = Path(given).expanduser()
    if not path.exists() and glob.has_magic(str(path)):
        matches = sorted(match for match in glob.glob(str(path), recursive=True) if not _hidden(Path(match).name))
        if not matches:
            raise DataError(f"no file matches {given}", hint="quote the pattern, and check it with ls")
        return [file for match in matches for file in _expanded(match, forced)]
    if not path.exists():
        if path.is_symlink():
            raise DataError(f"{path} is a link that leads nowhere", hint="check what it should lead to")
        siblings = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = _PIPE if str(given) == "-" else did_you_mean(path.name, siblings) or "check the path"
        raise DataError(f"there is no file {path}", hint=hint)
    if path.is_dir():
        return _in_folder(path, forced)
    if not path.is_file():
        raise DataError(f"{path} is not a file", hint=_PIPE)
    return [DataFile(path, forced or _format(path))]


def _in_folder(folder: Path, forced: Format | None) -> list[DataFile]:
    if (folder / "_delta_log").is_dir() or forced == "delta":
        if not (folder / "_delta_log").is_dir():
            raise DataError(f"{folder} is not a Delta table", hint="it has no folder _delta_log")
        return [DataFile(folder, "delta")]
    files = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(_hidden(part) for part in inside.parts):
            partition = dict(unquote(part).split("=", 1) for part in inside.parts[:-1] if "=" in part)
            files.append(DataFile(path, forced or _format(path), partition))
    if not files:
        raise DataError(f"the folder {folder} holds no data", hint=_KNOWN)
    return files


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) and "=" not in name


def _format(path: Path) -> Format:
    name = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    if known := _SUFFIXES.get(name.suffix.lower()):
        return known
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if known := _MAGIC.get(start):
        return known
    raise DataError(f"{path} is of no format that its name tells", hint=_KNOWN)
