"""Whether Java gets the environment of the unit, or one that a command between systemd and Java makes.

A login shell adds what the profiles of the host and of the user set, and `su`, `sudo` or `env -i` remove what the unit
sets. This is a list of what is understood: a program that is not in it can do both. Source: bash(1), INVOCATION;
env(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.shell_constructs import HARMLESS, is_shell
from kafka_rollout.nodes.runtimes.hosts.shell_lines import SOURCE, STARTS_KAFKA, assignments, unquoted
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile, TextFiles

_PROFILES = re.compile(r".*/etc/(?:profile|bashrc|bash\.bashrc|profile\.d/[^/]+)")
# Of the user, in the folder `$home`, and of the host. `profile.d` itself shows that a file was removed from it.
_LIST = (
    'user=$(systemctl show --property=User --value {unit}); home={home}; test -n "$home" || '
    'home=$(getent passwd "${{user:-root}}" | cut -d: -f6); '
    "for file in /etc/profile /etc/profile.d /etc/profile.d/*.sh /etc/profile.d/sh.local /etc/bash.bashrc /etc/bashrc; "
    'do test ! -e "$file" || stat -L -c "time %Z %n" "$file"; done; '
    "for file in .bash_profile .bash_login .profile .bashrc; do "
    'stat -L -c "time %Z %n" "$home/$file" 2>/dev/null || echo "time  $home/$file"; done; echo "home $home"'
)
_SEGMENT = re.compile(r"&&|\|\||[;&|(){}\n]|(?:^|\s)(?:then|do|else|elif|if|while|until|!|time)(?=\s)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|\S)*")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")
_PART = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|k|a)?sh")
_OF_LOGIN = re.compile(r"-[a-z]*[li][a-z]*|--login")
_OF_SHELL = re.compile(r"[-+][abcefhmuvxoC]+|--norc|--noprofile|--posix|pipefail|errexit|nounset")
# They start a program with the environment that they have. With the options that take it away.
_LAUNCHERS: dict[str, re.Pattern[str] | None] = {
    **dict.fromkeys(
        ("nohup", "command", "nice", "ionice", "numactl", "taskset", "setsid", "chrt", "prlimit", "stdbuf")
    ),
    **dict.fromkeys(("tini", "dumb-init")),
    "exec": re.compile(r"-\w*[cl]\w*"),
    "env": re.compile(r"-|-[a-zA-Z]*[iuSs][a-zA-Z]*|--(?:ignore|unset|split)\S*"),
    "setpriv": re.compile(r"--reset-env"),
}
_NAME = re.compile(r"\$\{?(\w+)\}?")
_EVAL = re.compile(r"(?:^|[;&|\s])eval\s")
# What distributions have in their profiles: locales, colours and pagers.
_OF_SYSTEM = re.compile(r"\beval\s.*(?:/usr/bin/|dircolors|lesspipe)")
_OF_JAVA_HOME = re.compile(r"(?:(?:\$PATH|\$\{PATH\}|\$JAVA_HOME/bin|\$\{JAVA_HOME\}/bin)(?::|$))+")
_OF_OPTION = re.compile(r"(?:^|\s)(?:-\w*c|--command)(?:\s|=)")
_USERS = frozenset({"su", "sudo", "runuser", "doas", "machinectl"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEnvironment:
    """What the next start makes of the environment of the unit."""

    why: str = ""
    """Why Java can get another one, the end of a sentence; empty: it gets that of the unit, and what a login adds."""
    logs_in: bool = False
    """A shell of the start reads the profiles, in addition."""
    after: tuple[TextFile, ...] = ()
    """What runs after the last such command; everything without one."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A command of a start that changes the environment."""

    shown: str
    """Empty: it only logs in."""
    logs_in: bool
    rest: str
    """The command that it runs."""


def read_environment(
    of_unit: Sequence[TextFile], of_release: Sequence[TextFile], variables: Mapping[str, str]
) -> StartEnvironment:
    """`of_unit`: the texts of a start outside of the release, first the command of the unit. `of_release`: those of the
    release. `variables`: of the unit."""
    logs_in, why, after = False, "", [*of_unit, *of_release]
    if {"BASH_ENV", "ENV"} & variables.keys():
        logs_in = True
    for number, text in enumerate((*of_unit, *of_release)):
        later = [*(of_unit[1:] if number == 0 else ()), *of_release]
        if not is_shell(text.interpreter):
            words = text.interpreter.removeprefix("/usr/bin/env ").split()
            is_login = _SHELL.fullmatch(words[0]) and any(map(_OF_LOGIN.fullmatch, words[1:]))
            logs_in, why = logs_in or bool(is_login), why if is_login else f"{text.path} is a script of {words[0]}"
            after = [text, *later]
        values = [pair for line in text.lines for pair in assignments(line)]
        known = {name: unquoted(value) for name, value in values if STARTS_KAFKA.search(value)}
        for at, line in enumerate(text.lines):
            if any(map(is_profile, SOURCE.findall(line))):
                logs_in, after = True, [_part(text, "", at), *later]
            named = _with_values(line, known)
            for part in [named] if number == 0 else _split(named):
                if change := _change(part, is_whole=number == 0):
                    logs_in, after = logs_in or change.logs_in, [_part(text, change.rest, at), *later]
                    shown = f"`{hide_credentials(change.shown)[:60]}` can change its environment"
                    why = why or (shown if change.shown else "")
    return StartEnvironment(why=why, logs_in=logs_in, after=tuple(after))


def is_profile(path: str) -> bool:
    """Return whether each login shell of the host reads a file."""
    return _PROFILES.fullmatch(path) is not None


def _with_values(line: str, known: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: known.get(match[1], match[0]), line)


def _part(text: TextFile, rest: str, at: int) -> TextFile:
    """Return what follows in a text after a command in one of its lines."""
    return replace(text, lines=(unquoted(rest), *text.lines[at + 1 :]))


def _split(line: str) -> list[str]:
    """Return the commands of a line. A text in quotes is a part of one."""
    plain = _QUOTED.sub(lambda match: "\0" * len(match[0]), line)
    cuts = [(match.start(), match.end()) for match in _SEGMENT.finditer(plain)]
    begins = [0, *(end for _, end in cuts)]
    return [line[begin:end] for begin, end in zip(begins, [*(start for start, _ in cuts), len(line)], strict=True)]


def _change(command: str, *, is_whole: bool = False) -> _Change | None:
    """Return how a command changes the environment of Kafka, which it starts. `is_whole`: it is that of the unit."""
    rest, logs_in = command.strip(), False
    while (match := _PART.match(rest)) is not None:
        word, rest = unquoted(match[0]), rest[match.end() :].strip()
        name = word.rpartition("/")[2]
        starts = STARTS_KAFKA.search(f" {rest}") is not None
        if not starts and not is_whole:
            break  # the word itself is the start, or it starts nothing
        if _ASSIGNMENT.fullmatch(word):
            continue
        if _SHELL.fullmatch(word):
            while option := re.match(r"([-+]\S+|pipefail|errexit|nounset)\s*", rest):
                rest = rest[option.end() :]
                logs_in = logs_in or _OF_LOGIN.fullmatch(option[1]) is not None
                if not (_OF_LOGIN.fullmatch(option[1]) or _OF_SHELL.fullmatch(option[1])):
                    return _Change(f"{name} {option[1]}", logs_in, rest)
            inner = rest[1:-1] if rest[:1] in ("'", '"') and rest[-1:] == rest[:1] else rest
            changes = [one for part in _split(inner) if (one := _change(part)) is not None]
            if changes:
                return replace(changes[-1], logs_in=logs_in or changes[-1].logs_in)
            return _Change("", True, inner) if logs_in else None
        if not starts or name in HARMLESS or name == "java":
            break
        if name not in _LAUNCHERS:
            return _Change(f"{word} {rest}", name in _USERS, _OF_OPTION.split(rest, maxsplit=1)[-1])
        removes = _LAUNCHERS[name]
        while option := re.match(r"(-\S*|[\d,]+|0x[\da-f]+)(?:\s+|$)", rest):
            rest = rest[option.end() :]
            if removes is not None and removes.fullmatch(option[1]):
                if name == "exec" and "c" not in option[1]:
                    logs_in = True
                else:
                    return _Change(f"{name} {option[1]}", logs_in, rest)
    return _Change("", True, rest) if logs_in else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """What a login shell of the start reads."""

    texts: tuple[TextFile, ...] = ()
    changed: tuple[str, ...] = ()
    """Paths of those that the process need not have read as they are now, and that do more than to set JAVA_HOME; and
    a folder from which one can have been removed since."""
    asking: tuple[str, ...] = ()
    """Paths of those that execute what a program prints."""
    why: str = ""
    """Why they are not known, the end of a sentence."""


def read_profiles(
    commands: HostCommands, node: NodeSpec, variables: Mapping[str, str], started: int | None
) -> Profiles:
    """`variables`: of the unit. `started`: when the process was started (epoch seconds of the host); None: unknown."""
    service = service_of(node)
    home = variables.get("HOME", "")
    quoted = f"'{home}'" if re.fullmatch(r"/[\w./@+-]*", home) else "''"
    done = commands.run(node, _LIST.format(unit=service.unit, home=quoted))
    rows = [line.split(" ", 2)[1:] for line in done.out.splitlines() if line.startswith("time ")]
    homes = [line.removeprefix("home ") for line in done.out.splitlines() if line.startswith("home ")]
    if done.code != 0 or not homes or not all(len(row) == 2 for row in rows):
        return Profiles(why="the host does not show which profiles its login shell reads")
    files = TextFiles(commands, node)
    named = [variables[name] for name in ("BASH_ENV", "ENV") if name in variables]
    files.read([path for _, path in rows] + named)
    newer = {path for time, path in rows if started is None or not time or int(time) >= started} | {*named}
    texts = tuple(files.texts.values())
    problem = next(
        (f"the SSH user cannot read {path}, which its login shell reads" for path in sorted(files.unread)), ""
    )
    known = {path for _, path in rows}
    for text in texts:
        for path in (unquoted(one) for line in text.lines for one in SOURCE.findall(line)):
            whole = re.sub(r"^(?:~|\$HOME|\$\{HOME\})(?=/)", lambda _: homes[0], path)
            if whole not in known and not whole.startswith(("/etc/", "/usr/")) and "/" in whole:
                problem = problem or f"{text.path}, which its login shell reads, reads {path}"
    return Profiles(
        texts=texts,
        changed=tuple(
            [path for _, path in rows if path.endswith("/profile.d") and path in newer]
            + [text.path for text in texts if text.path in newer and any(map(_does_more, text.lines))]
        ),
        asking=tuple(text.path for text in texts if any(map(_asks, text.lines))),
        why=problem,
    )


def _does_more(line: str) -> bool:
    return SOURCE.search(line) is not None or any(
        name == "PATH" and not _OF_JAVA_HOME.fullmatch(unquoted(value)) for name, value in assignments(line)
    )


def _asks(line: str) -> bool:
    return _EVAL.search(line) is not None and _OF_SYSTEM.search(line) is None
