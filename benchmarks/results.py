"""Results as they are kept and judged: a JSON file for each part in benchmarks/results/, and lines with a target.

A file says with which command, of which commit, on which machine, under which load, with which versions and when its
records were made, so that every number in the documentation can be traced to the command that made it.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["FOLDER", "Line", "load", "machine", "save", "show"]

FOLDER = Path(__file__).with_name("results")
_PACKAGES = ("numpy", "numba", "pyarrow", "duckdb", "pyspark", "delta-spark")


class Line(NamedTuple):
    """One target: what was measured must be at most that (`at_most`), or at least."""

    name: str
    unit: str
    target: float | None
    """None: told, not judged."""
    measured: float
    at_most: bool = True

    @property
    def passed(self) -> bool | None:
        """Whether the target is met."""
        if self.target is None:
            return None
        return self.measured <= self.target if self.at_most else self.measured >= self.target

    @property
    def verdict(self) -> str:
        """Pass, or by how much it is missed."""
        if self.target is None or self.passed is None:
            return ""
        if self.passed:
            return "pass"
        away = self.measured / self.target if self.at_most else self.target / self.measured
        return f"miss by {away:.2f}x"

    @property
    def goal(self) -> str:
        """The target in words."""
        return "" if self.target is None else f"{'at most' if self.at_most else 'at least'} {number(self.target)}"


def number(value: float) -> str:
    """As many digits as are worth reading."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {
        "cpu": _model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "versions": found,
    }


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def save(part: str, records: Any) -> None:
    """Writes a part's records, replacing those of the last run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    module = getattr(sys.modules["__main__"], "__spec__", None)
    name = module.name.removesuffix(".__main__") if module else sys.argv[0]
    body = {
        "command": shlex.join(["python", "-m", name, *sys.argv[1:]]),
        "commit": _commit(),
        "load": round(os.getloadavg()[0], 1),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "records": records,
    }
    (FOLDER / f"{part}.json").write_text(json.dumps(_rounded(body), indent=1) + "\n")


def _commit() -> str:
    """The commit that is measured, and whether the package differs from it."""
    root = Path(__file__).resolve().parent.parent
    words = [["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "weever_stream"]]
    try:
        head, changes = (
            subprocess.run(["git", "-C", root, *line], capture_output=True, text=True, check=True).stdout.strip()
            for line in words
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + (" with changes" if changes else "")


def load(part: str) -> dict[str, Any] | None:
    """A part as it was saved last; None if it never was."""
    path = FOLDER / f"{part}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def _rounded(value: Any) -> Any:
    """Floats with as many digits as the clocks are good for."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def show(title: str, lines: Iterable[Line]) -> None:
    """Prints the lines with target, measured value and verdict."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("what", "unit", "target", "measured", "verdict"):
        table.add_column(name, justify="right" if name in ("target", "measured") else "left")
    for line in lines:
        style = {True: "green", False: "red", None: ""}[line.passed]
        table.add_row(
            line.name, line.unit, line.goal, number(line.measured), f"[{style}]{line.verdict}" if style else ""
        )
    Console().print(table)
