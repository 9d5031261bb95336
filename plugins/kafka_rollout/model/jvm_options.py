"""Which options of a node's process its next start has too, and which a switch of the release or a change has taken."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from kafka_rollout.model.node_log import hide_credentials

_KEY = re.compile(r"-D[^=]+|-XX:[+-]?\w+|-Xm[xsn]|-Xss|-javaagent:[^=]+|-agent(?:path|lib):[^=]+")


AGENTS = ("-javaagent:", "-agentpath:", "-agentlib:")
_PORT = re.compile(
    r"-javaagent:[^=]+=(?:[\w.\[\]:-]+:)?(\d+):\S+|-agentlib:jdwp=\S*address=(?:[\w.*\[\]:-]+:)?(\d+)\b.*"
)
CLASS_PATH = "CLASSPATH="
"""Begins an entry of the class path, as an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOption:
    """An option of the process that its next start does not have."""

    option: str
    lines: tuple[str, ...] = ()
    """`path: line` of the scripts in the folder of the running release that set it. Credentials are hidden."""
    now: str = ""
    """Another value that the environment of the unit has for it."""

    @property
    def entry(self) -> str:
        """The entry of the class path that it is; empty for an option."""
        return self.option.removeprefix(CLASS_PATH) if self.option.startswith(CLASS_PATH) else ""

    def has_jar(self, jar: str) -> bool:
        """Return whether it is an entry with a jar: the jar itself, or all those of a folder (`/opt/plugins/*`)."""
        folder = self.entry.removesuffix("/*") if self.entry.endswith("/*") else None
        return bool(self.entry) and (jar == self.entry or posixpath.dirname(jar) == folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLine:
    """A line of a start script in the folder of the running release."""

    path: str
    text: str
    """Without its comment."""
    sets: frozenset[str] = frozenset()
    """The variables in it that nothing else of the next start sets."""

    def __str__(self) -> str:
        """Credentials, and the values of variables that can be one, are hidden."""

        def shown(found: re.Match[str]) -> str:
            return found[0] if _NO_SECRET.fullmatch(found[1]) else f"{found[1]}=[hidden]"

        return f"{self.path}: {shown_options(_EXPORTED.sub(shown, self.text))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextOptions:
    """The options of the JVM of a node's next start on one release, as far as they can be read."""

    arguments: tuple[str, ...] = ()
    """The command line of the process up to Kafka's own arguments, without the other fields, and `environment`, in the
    order in which Java gets them: the last value of an option counts."""
    environment: tuple[str, ...] = ()
    """Options in the environment of the unit that the start scripts give to Java."""
    lost: tuple[LostOption, ...] = ()
    """A script in the folder of the running release sets them, and that of the release does not."""
    gone: tuple[LostOption, ...] = ()
    """Neither the environment nor a script gives them to Java any more."""
    unclear: tuple[LostOption, ...] = ()
    """It is unknown whether the release has them, because of `unread`."""
    unsure: tuple[LostOption, ...] = ()
    """It is unknown whether what starts Kafka still gives them to Java, because of `why`. `arguments` has them."""
    why: tuple[str, ...] = ()
    """Files that cannot be read, and `path: command` of those whose effect on options their text does not show."""
    givers: tuple[str, ...] = ()
    """Files outside of the release that set variables of options themselves, such as a wrapper."""
    twice: tuple[tuple[str, str], ...] = ()
    """Pairs of agents that the next start gets: the same one twice, or two that open the same port."""
    unread: tuple[str, ...] = ()
    """Start scripts that the SSH user cannot read."""
    dropped: tuple[ScriptLine, ...] = ()
    """Lines of the running release's start scripts, and of what they read, that those of the release do not have. Those
    that only set options of the process are left out: `lost` has these."""

    @property
    def lost_entries(self) -> tuple[str, ...]:
        """Entries of the class path of the process that its next start does not have, or perhaps not."""
        found = (one.entry for one in (*self.lost, *self.gone, *self.unclear))
        return tuple(entry for entry in found if entry)


def agent_port(option: str) -> str:
    """Return the port that the JMX exporter (`PORT:FILE`) or the debugger opens; empty for another option. Java ends if
    it is in use."""
    match = _PORT.fullmatch(option)
    return (match[1] or match[2]) if match else ""


def option_key(option: str) -> str:
    """Return what two values of one option have in common: `-Xmx`, `-Dname`, `-XX:Name`."""
    match = _KEY.match(option)
    return re.sub(r"^-XX:[+-]", "-XX:", match[0]) if match else option


# Options of agents and plugins have keys, tokens and logins by any name, so only values of known options are shown.
_SHOWN = re.compile(
    r"kafka\.logs\.dir|log4j2?\..+|java\.(?:io\.tmpdir|net\..+|security\.(?:auth\.login\.config|krb5\..+|egd))|"
    r"javax\.net\.ssl\.\w*Store(?:Type)?|com\.sun\.management\.jmxremote\S*|org\.apache\.kafka\..+|"
    r"(?:jdk|sun|user|file|zookeeper)\..+"
)
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s\"']+)"
_PROPERTY = re.compile(rf"(-D([\w.-]+)=){_VALUE}")
# A word in quotes, whose value can have blanks.
_QUOTED = re.compile(r"(?:(?<=[\s(])|^)(([\"'])-D([\w.-]+)=)(?:(?!\2).)*(?=\2)")
_AGENT = re.compile(rf"(-(?:javaagent|agentpath|agentlib):[^\s=]+=){_VALUE}")
_EXPORTED = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)=(?:\"[^\"]*\"|'[^']*'|[^\s\"';|&]+)")
_NO_SECRET = re.compile(r"KAFKA_\w*OPTS|CLASSPATH|PATH|LD_\w+|JAVA_\w+|JMX_PORT|MALLOC_\w+|\w+_(?:DIR|HOME)|LANG|TZ")
_CUT = re.compile(r"[\s\"'].*", re.DOTALL)
_EXPORTER = re.compile(r"[\"']?(?:[\w.\[\]:-]+:)?\d+:\S+")


def shown_option(word: str) -> str:
    """Return an option of a process, up to a blank or a quote in it, with `[hidden]` for a value that can be secret."""
    return shown_options(_CUT.sub("…", word))


def shown_options(text: str) -> str:
    """Return a line of a script with `[hidden]` for values that can be a secret."""
    text = _QUOTED.sub(lambda found: found[0] if _SHOWN.fullmatch(found[3]) else f"{found[1]}[hidden]", text)
    text = _PROPERTY.sub(lambda found: found[0] if _SHOWN.fullmatch(found[2]) else f"{found[1]}[hidden]", text)
    return hide_credentials(
        _AGENT.sub(lambda found: found[0] if _EXPORTER.fullmatch(found[2]) else f"{found[1]}[hidden]", text)
    )
