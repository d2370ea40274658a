"""What the exit code of `weever` means: one meaning per code, the same for every command.

0    done, and nothing was found
1    violations of severity error or critical
2    violations of severity warning or info only
3    could not run: a wrong command, rule or file, or a failed engine
4    ran, but results or alerts were not delivered
5    `discover` ran out of time or memory: the rules it lists are right, but there may be more
6    `rules drift`: a rule is broken more often than it used to be
7    `state inspect --verify`: the state is damaged
130  stopped by Ctrl-C
143  stopped by SIGTERM
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """The exit codes, by name."""

    OK = 0
    VIOLATIONS = 1
    WARNINGS = 2
    COULD_NOT_RUN = 3
    NOT_DELIVERED = 4
    INCOMPLETE = 5
    DRIFT = 6
    DAMAGED = 7
    INTERRUPTED = 130
    TERMINATED = 143
