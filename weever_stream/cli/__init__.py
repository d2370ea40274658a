"""The `weever` command.

`exit_codes` lists the exit codes. A user's mistake is shown as a message with its place and a hint; a mistake of ours
as one line that asks to be reported, with its traceback only if WEEVER_DEBUG=1. Start-up is light: a command's module
is imported when the command runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from weever_stream.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run"]

_ISSUES = "please report it with the command you ran (WEEVER_DEBUG=1 shows the details)"


def main() -> None:
    """The console command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code. Whatever happens is told on stderr, never as a traceback."""
    from weever_stream.cli.output import have_stdout
    from weever_stream.observe import logs

    have_stdout()
    with logs.to_stderr():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    from weever_stream.cli.output import give_up_stdout, not_written, show_trace
    from weever_stream.errors import OutputError, WeeverError

    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except OutputError as error:
        return _fail(error.render(), ExitCode.NOT_DELIVERED)
    except WeeverError as error:
        return _fail(error.render(), ExitCode.COULD_NOT_RUN)
    except KeyboardInterrupt:
        return _fail("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone, as `head` does. What is still buffered must not raise again at exit.
        give_up_stdout()
        return ExitCode.NOT_DELIVERED
    except MemoryError:
        return _fail("there is not enough memory for this table", ExitCode.COULD_NOT_RUN)
    except Exception as error:
        if isinstance(error, OSError) and (message := not_written(error)):
            give_up_stdout()
            return _fail(message, ExitCode.NOT_DELIVERED)
        show_trace(error)
        return _fail(f"unexpected {type(error).__name__} in weever; {_ISSUES}", ExitCode.COULD_NOT_RUN)
    return code


def _dispatch(arguments: Sequence[str]) -> int:
    from weever_stream.cli.app import Interrupted, UsageError, dispatch

    try:
        code = dispatch(arguments)
    except UsageError as mistake:
        return _fail(str(mistake), ExitCode.COULD_NOT_RUN)
    except Interrupted:
        raise KeyboardInterrupt from None
    if code == ExitCode.INTERRUPTED:  # newer versions of typer catch the interrupt themselves
        raise KeyboardInterrupt
    return code


def _fail(message: str, code: int) -> int:
    from weever_stream.observe import logs

    if logs.as_json():
        logs.get("cli").error("failed", message, exit_code=code)
        return code
    with suppress(OSError, ValueError):  # nobody may be listening on stderr either
        print(f"weever: {message}", file=sys.stderr, flush=True)
    return code
