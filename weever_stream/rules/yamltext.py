"""Values written as YAML that our own reader reads back as they were.

PyYAML quotes a text that YAML 1.1 would take for something else. We read numbers as YAML 1.2 does, so texts such as
`1e5` need quotes too. No anchors, no folded lines. Cost: linear in the values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from weever_stream.rules.nodes import Node
from weever_stream.rules.source import Document

__all__ = ["dump"]

_NOWHERE = Document("")
_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Ends of lines to YAML 1.1, which PyYAML writes as they are and reads as spaces, unless they are escaped."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_text = Node(text, _NOWHERE, 0, 0, plain=True).typed() == text
    style = '"' if _BREAKS.search(text) else None if is_text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(values: Any) -> str:
    """The values in block style, in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
