"""References in a rule file's values: `${env:NAME}` and `${file:/path}`, filled in only when asked.

A value that held one becomes a `Secret`, which no log, repr or error shows; `reveal()` gives the text where it is used.
`$${` stands for a plain `${`. What is missing is reported with its place, by name, never by value. A file is a plain
one of at most `MAX_SECRET` bytes: no device or pipe is waited for, and none fills the memory.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.rules.nodes import Node

__all__ = ["MAX_SECRET", "Secret", "resolved"]

MAX_SECRET = 1 << 20

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}")


class Secret:
    """A text that is shown to nobody by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def resolved(value: Any, environ: Mapping[str, str], node: Node | None, errors: list[RuleError]) -> Any:
    """The value with its references filled in; what cannot be filled in is added to `errors`."""
    if isinstance(value, dict):
        return {key: resolved(item, environ, node and node.child(key), errors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [resolved(item, environ, node and node.child(index), errors) for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if not isinstance(value, str) or "${" not in value:
        return value
    found = False

    def fill(match: re.Match[str]) -> str:
        nonlocal found
        if match[1] is None:
            return "${"
        found = True
        try:
            return _look_up(match[1], environ)
        except RuleError as error:
            error.place = node.place() if node is not None else None
            errors.append(error)
            return ""

    text = _REFERENCE.sub(fill, value)
    return Secret(text) if found else text


def _look_up(reference: str, environ: Mapping[str, str]) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        if name not in environ:
            raise RuleError(f"the environment has no variable {name}", hint=f"set it before the start: export {name}=…")
        return environ[name]
    if kind == "file":
        return _content(name)
    raise RuleError(
        f"${{{reference}}} is not a reference", hint="write ${env:NAME} or ${file:/path}; $${ for a plain ${"
    )


def _content(name: str) -> str:
    """The text of a file, without the line break at its end."""
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would be waited for, before its kind is known.
        with os.fdopen(os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RuleError(f"{name} is no plain file", hint="write the secret to a file and name that")
            content = file.read(MAX_SECRET + 1)
        if len(content) > MAX_SECRET:
            raise RuleError(f"the file {name} is larger than {MAX_SECRET:,} bytes", hint="is it the right one?")
        return content.decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise RuleError(f"the file {name} cannot be read: {reason}") from None
