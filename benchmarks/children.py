"""Measuring in child processes: nothing measured shares memory, loaded modules or threads with anything else.

`call` runs a function of this package in a fresh Python and returns what it returns, with the peak of its memory.
`command` runs any command line and tells the CPU time (user and system, all threads) that the kernel counted for it.
The machine is shared: only CPU times are reported, and only ratios of times taken in turns within one run are judged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ROOT", "Spent", "call", "command", "forget_peak", "peak_memory", "say"]

ROOT = Path(__file__).resolve().parent.parent
"""The root of the repository: commands run here, so that this tree's weever is the one that is measured."""
_MEGABYTE = 1 << 20


class Spent(NamedTuple):
    """What a command cost, and how it ended."""

    cpu: float
    """Seconds, user and system."""
    peak_mb: int
    code: int
    output: str


def call(function: str, **arguments: Any) -> dict[str, Any]:
    """Calls `module.function` of this package with JSON arguments in a fresh process; its result is a dict."""
    line = [sys.executable, "-m", "benchmarks.children", function, json.dumps(arguments)]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function}({arguments}) failed in its process, with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def command(line: Sequence[str | Path], *, expect: Sequence[int] = (0,)) -> Spent:
    """Runs a command to its end. The kernel's own account of the child is what counts."""
    words = [str(word) for word in line]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in expect:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {child.returncode}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, child.returncode, output)


def peak_memory() -> int:
    """Megabytes that this process has held at most, by the kernel's high-water mark of its own memory.

    Not `ru_maxrss` of getrusage: a child begins with its parent's, and a small child of a large parent never grows.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 // _MEGABYTE
    raise RuntimeError("the kernel does not tell the peak of memory (no VmHWM)")


def forget_peak() -> None:
    """Sets the high-water mark to what is held now: what came before, compiling as a rule, is not measured."""
    Path("/proc/self/clear_refs").write_text("5")


def say(text: str) -> None:
    """Progress, for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def _answer(function: str, arguments: str) -> None:
    module, name = function.rsplit(".", 1)
    result = getattr(import_module(f"benchmarks.{module}"), name)(**json.loads(arguments))
    print(json.dumps({**result, "peak_mb": peak_memory()}))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
