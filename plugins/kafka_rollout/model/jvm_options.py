"""Which options of a node's process its next start has too, and which a switch of the release or a change has taken."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(r"-D[^=]+|-XX:[+-]?\w+|-Xm[xsn]|-Xss|-javaagent:[^=]+|-agent(?:path|lib):[^=]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOption:
    """An option of the process that its next start does not have."""

    option: str
    lines: tuple[str, ...] = ()
    """`path: line` of the scripts in the folder of the running release that set it. Credentials are hidden."""
    now: str = ""
    """Another value that the environment of the unit has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextOptions:
    """The options of the JVM of a node's next start on one release, as far as they can be read."""

    kept: tuple[str, ...] = ()
    """The command line of the process up to Kafka's own arguments, without the other fields."""
    environment: tuple[str, ...] = ()
    """Of the unit. They count more than those of the process."""
    lost: tuple[LostOption, ...] = ()
    """A script in the folder of the running release sets them, and that of the release does not."""
    gone: tuple[LostOption, ...] = ()
    """Neither the environment nor a script has them any more."""
    unclear: tuple[LostOption, ...] = ()
    """It is unknown whether the release has them, because of `unread`."""
    unread: tuple[str, ...] = ()
    """Start scripts that the SSH user cannot read."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.kept, *self.environment)


def option_key(option: str) -> str:
    """Return what two values of one option have in common: `-Xmx`, `-Dname`, `-XX:Name`."""
    match = _KEY.match(option)
    return re.sub(r"^-XX:[+-]", "-XX:", match[0]) if match else option
