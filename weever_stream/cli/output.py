"""Where a command writes its results: the terminal, a device as it is, or a file that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Annotated

import typer

from weever_stream.errors import OutputError
from weever_stream.remote import LOCAL_HINT, remote_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Format",
    "OutputFile",
    "give_up_stdout",
    "have_stdout",
    "is_stdout",
    "local_file",
    "not_written",
    "opened",
    "show_trace",
]


def local_file(output: Path | None) -> Path | None:
    """Refuses a URI as a place to write to, before any work is done for it."""
    if output is not None and (uri := remote_uri(output)):
        raise OutputError(f"{uri} cannot be written: it is no local file", hint=LOCAL_HINT)
    return output


OutputFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this file; - is the terminal.", callback=local_file),
]
_STDOUT = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
_OPEN_ALREADY = ("/dev/fd/", "/dev/stderr", "/proc/")
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})
"""What the system answers when a stream that was open cannot take more."""


class Format(str, Enum):
    """How verbs that tell of something tell it: to a person, or to a program."""

    text = "text"
    json = "json"


def show_trace(error: BaseException) -> None:
    """With WEEVER_DEBUG=1 all of an error on standard error, before the few lines that say it in our words."""
    if os.environ.get("WEEVER_DEBUG") == "1":
        with suppress(OSError, ValueError):
            traceback.print_exception(error)


def is_stdout(output: Path | None) -> bool:
    """Whether results go to standard output: no file is named, or `-`, or one of the system's names for it."""
    return output is None or str(output) in _STDOUT


@contextmanager
def opened(output: Path | None) -> Iterator[IO[bytes]]:
    """The stream to write to. Raises `OutputError` where a file cannot be written; then what it held is still there."""
    if output is None or is_stdout(output):
        yield sys.stdout.buffer
        return
    local_file(output)
    try:
        # A link stays a link: the file that it leads to is written. Nothing is ever put in the place of a device.
        target = Path(os.path.realpath(output))
        if str(output).startswith(_OPEN_ALREADY) or (target.exists() and not target.is_file()):
            with output.open("wb") as out:
                yield out
            return
        with NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as out:
            try:
                yield out
                out.flush()
                os.fchmod(out.fileno(), 0o666 & ~_umask())
                os.replace(out.name, target)
            except BaseException:
                os.unlink(out.name)
                raise
    except OSError as error:
        raise OutputError(
            f"{output} cannot be written: {error.strerror or error}", hint="check its path, rights and space"
        ) from None


def not_written(error: OSError) -> str | None:
    """The message for an error of writing to standard output; None if it was none."""
    if error.errno not in _NOT_WRITTEN or error.filename is not None:
        return None
    return f"the results cannot be written: {error.strerror}\n  hint: check where the output goes, or name a file"


def have_stdout() -> None:
    """Standard output that was closed (`>&-`) becomes one that refuses what is written, not one that is missing.

    Its number would else be given to the next file that is opened, and prints would end up in there.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")


def give_up_stdout() -> None:
    """What is still buffered goes nowhere, so that it does not fail again when the process ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
