"""Java, which Spark needs and pip cannot bring: which one Spark would start, and whether it is new enough.

Looks where Spark's own start script looks: JAVA_HOME, then PATH. Asking its version takes a tenth of a second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from weever_stream.errors import EngineError

__all__ = ["OLDEST", "Java", "java"]

OLDEST = 17
"""Spark 4 is compiled for Java 17."""
_INSTALL = (
    f"install Java {OLDEST} or newer (Debian: apt install openjdk-{OLDEST}-jre-headless; macOS: brew install "
    f"openjdk@{OLDEST}; conda: openjdk={OLDEST}) and set JAVA_HOME to it"
)


@dataclass(frozen=True)
class Java:
    """The Java that Spark starts: its program, its version as it says it, and what named it."""

    program: Path
    version: str
    named_by: str


def java() -> Java:
    """Finds it and asks its version. Raises `EngineError` where there is none, it does not run, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise EngineError("Spark needs Java, and there is none: JAVA_HOME is not set, no java in PATH", hint=_INSTALL)
    named_by = "JAVA_HOME" if home else "PATH"
    try:
        asked = subprocess.run([found, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        raise EngineError(f"Java at {found}, named by {named_by}, does not run: {reason}", hint=_INSTALL) from None
    said = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
    if said is None or asked.returncode != 0:
        raise EngineError(f"what {named_by} names, {found}, is not Java: it tells no version", hint=_INSTALL)
    if _major(said[1]) < OLDEST:
        raise EngineError(f"Java {said[1]} at {found}, named by {named_by}, is too old for Spark 4", hint=_INSTALL)
    return Java(Path(found), said[1], named_by)


def _major(version: str) -> int:
    """17 of "17.0.15", and 8 of "1.8.0_392"."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
