"""The verbs of `weever`, each imported only when it runs, or when help lists them all.

A verb is the function of its own name in the module of its name, with its options as typer annotations. Every option
can also be given by the environment: WEEVER_CHECK_LIMIT for `weever check --limit`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GROUPS", "VERBS", "Interrupted", "UsageError", "dispatch"]

VERBS = (
    "run",
    "violations",
    "rules",
    "plan",
    "backfill",
    "state",
    "alerts",
    "check",
    "discover",
    "validate",
    "explain",
    "convert",
    "doctor",
    "demo",
)
GROUPS = {"rules": ("How the rules of a job are doing.", ("drift",))}
"""Verbs that have verbs of their own, each a function in the module of its own name."""
Interrupted = typer.Abort
_HELP = {"help_option_names": ["-h", "--help"]}


class UsageError(Exception):
    """An unknown verb or option, or a value that an option does not take."""


class _Verbs(TyperGroup):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in GROUPS:
            return _Group(name=cmd_name, help=GROUPS[cmd_name][0], context_settings=_HELP, rich_markup_mode=None)
        return _command(cmd_name) if cmd_name in VERBS else None


class _Group(TyperGroup):
    """The same one level down."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(GROUPS[str(self.name)][1])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in self.list_commands(ctx) else None


def _command(name: str) -> Any:
    verb = getattr(import_module(f"weever_stream.cli.{name}"), name)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, context_settings=_HELP)(verb)
    command = typer.main.get_command(single)
    command.name = name
    return command


_app = typer.Typer(
    cls=_Verbs,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "WEEVER", "help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"weever {version('weever-stream')}")
        except PackageNotFoundError:
            typer.echo("weever, not installed")
        raise typer.Exit


@_app.callback(invoke_without_command=True)
def weever(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            # WEEVER_VERSION is what people call the version they install: it must not turn every command into this one
            allow_from_autoenv=False,
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    """Tells you which rows of your data contradict each other."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def dispatch(arguments: Sequence[str]) -> int:
    """Runs the verb that a command line names; returns its exit code."""
    try:
        code = _app(args=list(arguments), standalone_mode=False, prog_name="weever")
    except SystemExit:
        # The one thing that click ends by itself even so: the reader of our output has gone.
        raise BrokenPipeError from None
    except Exception as error:
        # click's errors, whichever copy of click typer brings: they know how to explain themselves
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        hint = f"\n  hint: {context.command_path} --help shows how it is used" if context is not None else ""
        raise UsageError(error.format_message() + hint) from None
    return code if isinstance(code, int) else 0
