"""The commands of `weever`: which there are, in which section of the help, and how they read the environment.

A command is imported only when it runs, or when help lists it. Every option can also be set by an environment variable
named after the command and the option: WEEVER_CHECK_LIMIT for `weever check --limit`, WEEVER_ALERTS_SILENCE_FOR for
`weever alerts silence --for`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["GROUPS", "SECTIONS", "Interrupted", "UsageError", "commands", "dispatch"]

SECTIONS = {
    "Start here": ("demo", "doctor"),
    "Check a table": ("check", "discover"),
    "Run the stream": ("run", "violations", "learn"),
    "Rules": ("validate", "explain", "convert", "rules"),
    "Operate": ("plan", "backfill", "alerts", "state"),
}
"""Each command once, under the heading it has in `weever --help`."""
GROUPS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "rules": (
        "Review learned rules, and see which rules drift.",
        {"review": "review:review", "drift": "drift:drift"},
    ),
    "alerts": (
        "Test, list and silence alerts.",
        {
            "test": "alerts:send_test",
            "list": "alerts:list_open",
            "history": "alerts:list_history",
            "silence": "alerts:silence",
            "unsilence": "alerts:unsilence",
        },
    ),
    "state": (
        "Inspect, clean up and rescale the state of a job.",
        {"inspect": "state:inspect", "gc": "state:gc", "rescale": "state:rescale"},
    ),
}
"""Commands with subcommands: the help of each, and the function of every subcommand as module:name."""
Interrupted = typer.Abort
_HELP = {"help_option_names": ["-h", "--help"]}


class UsageError(Exception):
    """An unknown command or option, or a value that an option does not take."""


class _Commands(TyperGroup):
    """Commands that are imported when they are needed, and a misspelt name that is corrected."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            hint = did_you_mean(args[0], known) or f"{ctx.command_path} --help lists the commands"
            raise UsageError(f"no such command: {ctx.command_path} {args[0]}\n  hint: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in self.sections(ctx):
            with formatter.section(heading):
                formatter.write_dl([(name, _summary(self.get_command(ctx, name))) for name in names])

    def sections(self, ctx: Any) -> list[tuple[str, Sequence[str]]]:
        """The headings of the help, each with its commands."""
        return [("Commands", self.list_commands(ctx))]


class _TopLevel(_Commands):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in GROUPS:
            return _Subcommands(
                name=cmd_name,
                help=GROUPS[cmd_name][0],
                context_settings=_HELP,
                rich_markup_mode=None,
            )
        return _command(cmd_name, f"{cmd_name}:{cmd_name}") if cmd_name in self.list_commands(ctx) else None

    def sections(self, ctx: Any) -> list[tuple[str, Sequence[str]]]:
        return list(SECTIONS.items())


class _Subcommands(_Commands):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:  # the help, as --help prints it; but something is missing, so nothing was done
            typer.echo(ctx.get_help())
            raise typer.Exit(ExitCode.COULD_NOT_RUN)
        return list(super().parse_args(ctx, args))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(GROUPS[str(self.name)][1])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        function = GROUPS[str(self.name)][1].get(cmd_name)
        return function and _command(f"{self.name} {cmd_name}", function)


def _summary(command: Any) -> str:
    """The first sentence of a command's help, whole: click cuts it to the width of a line."""
    return str(command.help).split("\n\n")[0].replace("\n", " ")


def _command(path: str, function: str) -> Any:
    """The command at a path such as `alerts test`, made from a function given as module:name."""
    module, name = function.split(":")
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(path.rpartition(" ")[2], context_settings=_HELP)(
        getattr(import_module(f"weever_stream.cli.{module}"), name)
    )
    command = typer.main.get_command(single)
    for option in command.params:
        if option.param_type_name == "option":
            option.envvar = _variable(path, option.opts)
    return command


def _variable(path: str, spellings: Sequence[str]) -> str:
    """The environment variable of an option: named as people write it, not as our code does."""
    option = next(one for one in spellings if one.startswith("--"))
    return f"weever {path} {option[2:]}".replace(" ", "_").replace("-", "_").upper()


_app = typer.Typer(
    cls=_TopLevel,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Detect rows that contradict each other, and clear the violation when they are fixed."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can run, with its path below `weever`."""
    top: Any = typer.main.get_command(_app)
    for name in top.list_commands(None):
        command = top.get_command(None, name)
        if name not in GROUPS:
            yield name, command
            continue
        for subcommand in command.list_commands(None):
            yield f"{name} {subcommand}", command.get_command(None, subcommand)


def dispatch(arguments: Sequence[str]) -> int:
    """Runs the command that a command line names; returns its exit code."""
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
        hint = f"\n  hint: {context.command_path} --help shows its usage" if context is not None else ""
        raise UsageError(error.format_message() + hint) from None
    return code if isinstance(code, int) else 0
