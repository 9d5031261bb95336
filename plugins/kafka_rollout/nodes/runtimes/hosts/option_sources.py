"""Where the options of a node's process come from, so which of them its next start has too.

kafka-server-start.sh and kafka-run-class.sh are in the folder of the release, and many guides write a heap, a JAAS file
or an agent into them. So each option is looked for where the next start takes its options from: the environment and the
command of the unit, programs and files that it names outside of the release, and the scripts of the next release.
What is only in a script of the running release is lost with it. Nothing is executed, and nothing needs a right.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.model.jvm_options import (
    AGENTS,
    CLASS_PATH,
    LostOption,
    NextOptions,
    ScriptLine,
    agent_port,
    option_key,
    shown_option,
    shown_options,
)
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts import class_path
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of, shown_commands
from kafka_rollout.nodes.runtimes.hosts.shell_constructs import is_shell, unclear_commands
from kafka_rollout.nodes.runtimes.hosts.shell_lines import (
    BRACES,
    COMMAND,
    REFERENCE,
    SOURCE,
    STARTS_KAFKA,
    ReplacedVariables,
    additions,
    assignments,
    names_anywhere,
    names_in,
    references,
    set_alone,
    set_always,
    unquoted,
)
from kafka_rollout.nodes.runtimes.hosts.start_environment import StartEnvironment, is_profile, read_environment
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile, TextFiles, text_of
from kafka_rollout.nodes.runtimes.hosts.unit_environment import (
    AFTER_COMMAND_LINE,
    BEFORE_COMMAND_LINE,
    OF_JAVA,
    OF_KAFKA,
)
from kafka_rollout.releases.facts import Release

# What the scripts of each release add, from kafka-run-class.sh and kafka-server-start.sh of 3.0 to 4.3.
_OF_KAFKA = """\
base_dir=$(dirname $0)/..
LOG_DIR=$base_dir/logs
KAFKA_HEAP_OPTS="-Xmx1G -Xms1G"
KAFKA_HEAP_OPTS=-Xmx256M
KAFKA_JVM_PERFORMANCE_OPTS="-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
KAFKA_JVM_PERFORMANCE_OPTS="-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
KAFKA_GC_LOG_OPTS="-Xlog:gc*:file=$LOG_DIR/$1-gc.log:time,tags:filecount=10,filesize=100M"
KAFKA_GC_LOG_OPTS="-Xloggc:$LOG_DIR/$1-gc.log -verbose:gc -XX:+PrintGCDetails -XX:+PrintGCDateStamps"
KAFKA_GC_LOG_OPTS="-XX:+PrintGCTimeStamps -XX:+UseGCLogFileRotation -XX:NumberOfGCLogFiles=10 -XX:GCLogFileSize=100M"
KAFKA_JMX_OPTS="-Dcom.sun.management.jmxremote -Dcom.sun.management.jmxremote=true"
KAFKA_JMX_OPTS="-Dcom.sun.management.jmxremote.authenticate=false -Dcom.sun.management.jmxremote.ssl=false"
KAFKA_JMX_OPTS="-Dcom.sun.management.jmxremote.port=$JMX_PORT -Dcom.sun.management.jmxremote.rmi.port=$JMX_PORT"
KAFKA_LOG4J_OPTS="-Dkafka.logs.dir=$LOG_DIR -Dlog4j.config.dir=$base_dir/config"
KAFKA_LOG4J_OPTS="-Dlog4j.configuration=file:$base_dir/config/log4j.properties"
KAFKA_LOG4J_OPTS="-Dlog4j2.configurationFile=$base_dir/config/log4j2.yaml"
"""
# What the scripts of packages add to that.
_OF_PACKAGES = """\
LOG_DIR=/var/log/kafka
KAFKA_LOG4J_OPTS="-Dlog4j.config.dir=/etc/kafka -Dlog4j.configuration=file:/etc/kafka/log4j.properties"
KAFKA_LOG4J_OPTS="-Dlog4j2.configurationFile=/etc/kafka/log4j2.yaml"
"""
_DEBUG = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=${DEBUG_SUSPEND_FLAG:-n},address=${JAVA_DEBUG_PORT:-5005}"
_SCRIPTS = ("kafka-server-start.sh", "kafka-run-class.sh", "kafka-server-start", "kafka-run-class")
# These can take an environment from elsewhere, such as the profile of a user.
_OF_LOGIN = re.compile(r"(?:^|[\s/])(?:su|sudo|runuser|docker|podman|--login|-[a-z]*l[a-z]*)(?=\s)")
_NAMED = re.compile(r"(?<![\w}.$/-])(/[\w.@+/-]+)")
_FILE = re.compile(r"(?:^|\s)['\"]?(/[^\s'\";|&<>]+)")
_PART = rf"{COMMAND}|{BRACES}|\\.|[^\s\"'`;|&<>()${{}}]|\{{[^\s{{}}]*\}}|\$"
# An option, also after a reference that ends the word before it or is empty (`${KAFKA_OPTS:+$KAFKA_OPTS }-Dx`).
_OPTION = re.compile(
    rf"(?:^|(?<=[\s\"'=(]))(?:(?:[\"']?(?:{COMMAND}|{BRACES}|\$\w+))+[\"']?)?(-{{1,2}}[A-Za-z@](?:{_PART})*)"
)
# A word of a line, with the quotes in it.
_WORD = re.compile(rf"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|{_PART})+")
_VALUE = re.compile(r"[A-Za-z_]\w*\+?=(.*)")
_DIRNAME = re.compile(r"\"?\$\(dirname \"?\$(?:0|\{BASH_SOURCE[^}]*\})\"?\)\"?")
_OWN_FOLDER = re.compile(rf"{_DIRNAME.pattern}|\$base_dir|\$\{{base_dir\}}")
_OUTPUT = re.compile(r"\d*>>?\s*\S+")
# After these, `$1` and `$@` of a script are others, or in a function.
_OTHER_ARGUMENTS = re.compile(r"\bshift\b|\bset\s+--|\w\s*\(\)|\bfunction\s")
_SHELLS = re.compile(r"^\s*(?:/\S*/)?(?:ba|da|k|z)?sh(?:\s+-\w+)*\s+")
_OF_SHELL = frozenset("$`*?[]{}~")  # in a path: which file it is, only the shell knows
_AROUND = (BEFORE_COMMAND_LINE, AFTER_COMMAND_LINE)
_DEPTH = 5
_LONGEST = 60_000  # characters of an expression
_NOTHING = "(?!)"
_MOST_NAMED = 20  # files that a script names
# Variables that a shell sets itself.
_OF_THE_SHELL = re.compile(
    r"BASH\w*|DIRSTACK|EUID|FUNCNAME|GROUPS|HOME|HOST\w*|LANG|LC_\w+|LINENO|LOGNAME|MACHTYPE|OLDPWD|OPTARG|OPTIND|OSTYPE|"
    r"PATH|PPID|PWD|RANDOM|REPLY|SECONDS|SHELL|SHLVL|UID|USER|[A-Z]+_DIRECTORY|INVOCATION_ID|SYSTEMD_\w+"
)
_LEADING = re.compile(rf"^(?:{COMMAND}|{BRACES}|\$\w+)+")
_PATTERN = re.compile(r"[*?]|\[[^]]*\]|\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions:
    """What a unit's process and environment say."""

    process: tuple[str, ...] = ()
    """Its command line."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the unit's environment and of systemd's own."""
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of the options of the JVM in them, by variable (unit_environment.jvm_words)."""
    is_whole: bool = True
    """False if a part of the environment could not be read."""
    unknown: RolloutError | None = None
    """Why the options of the next start are unknown in part."""
    search: str = ""
    """ExecSearchPath, which is PATH if the environment has none."""
    commands: tuple[str, ...] = ()
    """ExecStart, ExecStartPre, ExecStartPost and ExecCondition, as systemd shows them."""
    files: tuple[str, ...] = ()
    """Those of EnvironmentFile= that exist, or can exist."""
    empty_patterns: tuple[str, ...] = ()
    """Patterns of EnvironmentFile= without a match, and without which systemd starts nothing."""
    started: int | None = None
    """When its process was started (epoch seconds of the host); None: unknown."""


def _options(text: TextFile) -> Iterator[str]:
    """Yield options with their quotes: those in quotes too, and words and parts of values with quotes in them."""
    for line in _plain(text):
        for written in (line, *(match[3] for match in references(line) if match[3])):
            yield from _OPTION.findall(written)
        for word in _WORD.findall(line):
            value = _VALUE.fullmatch(word)
            parts = [word] if value is None else value[1].split()
            yield from (part for part in parts if part.lstrip("\"'").startswith("-"))


def _assignments(text: TextFile) -> Iterator[tuple[str, str]]:
    for line in _plain(text):
        yield from assignments(line)
        for name, words in class_path.loops(line):  # a pattern of files is any of their names
            yield from ((name, _PATTERN.sub("$(:)", word) if "$" not in word else word) for word in words)


def _plain(text: TextFile) -> Iterator[str]:
    """Yield the lines with the name of the script's own folder: its path can have links."""
    own = f"$(.)/{posixpath.basename(posixpath.dirname(text.path))}"
    return (_DIRNAME.sub(lambda _: own, line) for line in text.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptsOfStart:
    """What the unit's next start executes."""

    options: Mapping[Release | None, NextOptions]
    """By release, as in `read_next_start`."""
    texts: tuple[TextFile, ...]
    """The commands of the unit, and scripts that they execute."""
    scripts: Mapping[Release | None, tuple[TextFile, ...]]
    """Those of them that come before Java, by release: of a package, those of now."""
    is_known: bool
    """Nothing else comes before Java."""
    wrappers: tuple[TextFile, ...] = ()
    """Scripts outside of the release that ExecStart executes, and files that they read as parts of themselves."""
    arguments: tuple[str, ...] = ()
    """Of the first of them."""
    java: str = ""
    """The program of ExecStart if it is Java itself."""
    given: Mapping[Release | None, StartEnvironment] = field(default_factory=dict)
    """What Java gets as its environment, by release."""

    @property
    def environment(self) -> tuple[str, ...]:
        """Options in the environment of the unit that Java gets on one of the releases."""
        return tuple(dict.fromkeys(word for one in self.options.values() for word in one.environment))

    @property
    def kept(self) -> tuple[str, ...]:
        """Options that Java gets on each of the releases."""
        first, *others = [one.arguments for one in self.options.values()] or [()]
        return tuple(word for word in first if all(word in other for other in others))

    def wrapper_lines(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """Return the lines of the wrappers, with their arguments, and with each variable that has one value there and
        in `variables`."""
        values: dict[str, set[str]] = {name: {value} for name, value in variables.items()}
        for text in self.wrappers:
            for name, value in _assignments(text):
                values.setdefault(name, set()).add(unquoted(value))
        known = {name: value for name, (value, *more) in values.items() if not more and name not in names_in(value)}
        if not any(_OTHER_ARGUMENTS.search(line) for text in self.wrappers for line in text.lines):
            known |= {str(number): word for number, word in enumerate(self.arguments, 1)}
            known |= dict.fromkeys("@*", " ".join(self.arguments)) if self.arguments else {}
        return tuple(_with_values(line, known) for text in self.wrappers for line in _plain(text))


class ScriptScope:
    """Options that texts can give to a JVM, with the values that their variables can have."""

    def __init__(self, texts: Sequence[TextFile], variables: Mapping[str, str], *, is_whole: bool) -> None:
        """`is_whole`: a variable without a value in `texts` and `variables` is not set."""
        self.texts = texts
        self._is_whole = is_whole
        self._values: dict[str, list[str]] = {name: [value] for name, value in variables.items()}
        for text in texts:
            for name, value in _assignments(text):
                self._values.setdefault(name, []).append(value)
        self._set_always = {*set_always(text.lines for text in texts), *variables}
        self._known: dict[tuple[str, str, int, str], str] = {}
        words = {word for text in texts for word in _options(text)}
        words |= {word for value in variables.values() for word in value.split() if word.startswith("-")}
        patterns = {word: self.pattern(word) for word in sorted(words)}
        joined = {
            word: self.pattern(word, unknown=_NOTHING)
            for values in self._values.values()
            for one in values
            for word in _pieces(unquoted(one))
            if (match := REFERENCE.match(word)) and match[0] != word  # `${NAME}6g` can be an option
        }
        self._patterns = {word: re.compile(found) for word, found in (joined | patterns).items()}
        lines = [line for text in texts for line in _plain(text)]
        self._class_paths = class_path.ClassPaths(lines, variables, self.pattern)

    def has_entry(self, entry: str) -> bool:
        """Return whether the texts can give an entry of the class path to a JVM."""
        return self._class_paths.explains(entry)

    def lines_of_entries(self, *, without: Iterable[TextFile]) -> tuple[str, ...]:
        """Return the lines that set the class path, and that the others do not have."""
        others = {line for text in without for line in text.lines}
        lines = ((text, line) for text in self.texts for line in text.lines if line not in others)
        return tuple(f"{text.path}: {shown_options(line)}" for text, line in lines if class_path.sets_class_path(line))

    def explains(self, option: str) -> bool:
        return any(pattern.fullmatch(option) for pattern in self._patterns.values())

    def lines_of(self, option: str, *, without: Iterable[TextFile]) -> tuple[str, ...]:
        """Return the lines that set an option, or the variables in it, and that the others do not have."""
        words = [word for word, pattern in self._patterns.items() if pattern.fullmatch(option)]
        names = {name for word in words for name in names_in(word)}
        names |= {name for one in tuple(names) for value in self._values.get(one, ()) for name in names_in(value)}
        others = {line for text in without for line in text.lines}
        return tuple(
            f"{text.path}: {shown_options(line)}"
            for text in self.texts
            for line in text.lines
            if line not in others
            and (any(word in line for word in words) or any(name in names for name, _ in assignments(line)))
        )

    def gives_only(self, line: str, process: Sequence[str]) -> bool:
        """Return whether a line only sets the class path, and options of a process: these are compared one by one."""
        set_ = set_alone(line)
        if not set_ or not {*set_} <= {*OF_KAFKA, class_path.VARIABLE}:
            return False
        words = (word for value in set_.values() for word in unquoted(value or "").split() if word.startswith("-"))
        return all(any(re.fullmatch(self.pattern(word), one) for one in process) for word in words)

    def pattern(self, word: str, depth: int = _DEPTH, *, unknown: str = ".*") -> str:
        """Return an expression for what a shell makes of a word.

        `unknown`: the expression for a command, which can print anything, and for a variable in too many others.
        """
        found, at = "", 0
        for match in REFERENCE.finditer(word):
            found += re.escape(unquoted(word[at : match.start()])) + self._value(match, depth, unknown)
            at = match.end()
        return found + re.escape(unquoted(word[at:]))

    def _value(self, match: re.Match[str], depth: int, unknown: str) -> str:
        name = match[1] or match[5] or ""
        if not re.match(r"[A-Za-z_]", name) or match[4] or depth == 0:
            return unknown
        values = [*self._values.get(name, ()), *([match[3]] if match[3] else [])]
        if not values and (not self._is_whole or _OF_THE_SHELL.fullmatch(name)):
            return unknown
        key = name, match[3] or "", depth, unknown
        if key not in self._known:  # a variable that is appended to has all its values in each of them
            values += [piece for one in values for piece in _pieces(one) if piece != one]
            values += [] if name in self._set_always else [""]
            all_of = dict.fromkeys(self.pattern(one, depth - 1, unknown=unknown) for one in dict.fromkeys(values))
            found = f"(?:{'|'.join(all_of)})"
            self._known[key] = found if len(found) <= _LONGEST else unknown
        return self._known[key]


def _pieces(value: str) -> list[str]:
    """Return the words of a value: a shell parts it at blanks, and joins the first and the last with what is around."""
    whole = REFERENCE.sub(lambda match: re.sub(r"\s", "\0", match[0]), value)
    return [word.replace("\0", " ") for word in whole.split()]


def _with_values(line: str, known: Mapping[str, str], depth: int = _DEPTH) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[5] or ""
        return _with_values(known[name], known, depth - 1) if name in known and depth else match[0]

    return REFERENCE.sub(value, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """Texts of scripts and of the files that they read."""

    texts: tuple[TextFile, ...] = ()
    unread: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    """Why options can come from elsewhere: paths of files that cannot be read, and `path: command` of those whose
    effect their text does not show."""
    is_read: bool = True
    """False if a file that they read is not among the texts."""

    @property
    def is_whole(self) -> bool:
        return not self.why


def read_next_start(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release | None], unit: UnitOptions
) -> ScriptsOfStart:
    """Return the options of the next start on each release; None: on another one with Kafka's own scripts.

    A package brings scripts that cannot be read before. Then what its scripts of now set is lost and kept: no plan can
    see it, and no finding of it blocks.
    """
    service = service_of(node)
    before = [one for one in unit.commands if one.startswith(("ExecStartPre=", "ExecCondition="))]
    command = " ; ".join(shown_commands("\n".join(one for one in unit.commands if one.startswith("ExecStart="))))
    prepares = " ; ".join(shown_commands("\n".join(before)))
    start = STARTS_KAFKA.search(command)
    link = "" if service.package else service.symlink
    stays, moves, own = _programs(command, link)
    folders = {release: service.folder(release) for release in releases if release is not None and link}
    running = [*moves, *(f"{folder}/{name}" for folder in dict.fromkeys((own, f"{link}/bin")) for name in _SCRIPTS)]
    then: dict[Release | None, list[str]] = {
        release: [f"{folder}/{name}" for name in _names_in(running, link)] for release, folder in folders.items()
    }
    files = _Scripts(commands, node)
    prepared = [path for path in dict.fromkeys(_FILE.findall(prepares)) if path != service.configuration_file]
    files.read_all([*stays, *running, *(path for paths in then.values() for path in paths), *prepared])
    of_unit = files.all_of(stays, TextFile(path=f"unit {service.unit}", lines=(command,)))
    before_it = files.all_of(prepared, TextFile(path=f"unit {service.unit}", lines=(prepares,)))
    scripts = [*then.values()] if folders else [running]
    texts = [*before_it.texts, *of_unit.texts, *(text for paths in scripts for text in files.all_of(paths).texts)]
    named = files.read_named(of_unit, without={service.configuration_file})
    process = unit.process[: unit.process.index(MAIN_CLASS)] if MAIN_CLASS in unit.process else unit.process
    debugs = "KAFKA_DEBUG" in unit.variables
    java = command.split(" ", 1)[0]
    java = java if start is None and posixpath.basename(java) == "java" else ""
    options = {
        release: _next_options(
            process,
            unit,
            stays=of_unit,
            running=files.all_of(running),
            then=files.all_of(then.get(release, ())),
            absent=_absent(moves, then.get(release, ()), files),
            mentions=_Mentions.of(of_unit.texts, named),
            starts=bool(java) or _starts_kafka(of_unit.texts),
            is_known=bool(link),
            is_java=bool(java),
            own=posixpath.dirname(service.package.jars) if service.package else f"{link}/libs",
            added=_OF_KAFKA + (_OF_PACKAGES if service.package else "") + (_DEBUG if debugs else ""),
        )
        for release in releases
    }
    wrappers = tuple(text for text in of_unit.texts if text.path in files.texts)
    read = {release: files.all_of(then[release] if folders else running) for release in folders or (None,)}
    return ScriptsOfStart(
        options=options,
        texts=tuple(dict.fromkeys(texts)),
        scripts={release: (*of_unit.texts, *one.texts) for release, one in read.items()},
        is_known=bool(_starts(of_unit.texts)) and of_unit.is_read and all(one.is_read for one in read.values()),
        wrappers=wrappers,
        arguments=_arguments_of(command, wrappers[0].path) if wrappers else (),
        java=java,
        given={release: read_environment(of_unit.texts, one.texts, unit.variables) for release, one in read.items()},
    )


def read_scripts(commands: HostCommands, node: NodeSpec, unit: str, written: Sequence[str]) -> ScriptsOfStart:
    """Return what another unit executes. `written`: its commands."""
    command = " ; ".join(written)
    files = _Scripts(commands, node)
    named = [path for path in dict.fromkeys(_FILE.findall(command)) if path != service_of(node).configuration_file]
    files.read_all(named)
    read = files.all_of(named, TextFile(path=f"unit {unit}", lines=(command,)))
    scripts = tuple(text for text in read.texts if text.path in files.texts)
    return ScriptsOfStart(
        options={}, texts=tuple(dict.fromkeys(read.texts)), scripts={}, is_known=read.is_read, wrappers=scripts
    )


def _absent(moves: Sequence[str], then: Sequence[str], files: TextFiles) -> frozenset[str]:
    """Return the programs below the link that a release does not have. `then`: their paths there, and others."""
    there = {*files.texts, *files.unread}
    return frozenset(path for path, copy in zip_longest(moves, then[: len(moves)]) if copy not in there)


def _arguments_of(command: str, script: str) -> tuple[str, ...]:
    """Return the words after a script in the command of a unit; empty without it, and if another command follows."""
    _, is_there, words = f" {command} ".partition(f" {script} ")
    return tuple(words.split()) if is_there and not re.search(r"[;&|'\"]", words) else ()


def _starts_kafka(texts: Iterable[TextFile]) -> bool:
    """Return whether one of the texts starts Kafka's scripts, and none of them through a login."""
    lines = _starts(texts)
    return bool(lines) and not any(_OF_LOGIN.search(f"{line[:at]} ") for line, at in lines)


def _starts(texts: Iterable[TextFile]) -> list[tuple[str, int]]:
    """Return the lines that start Kafka's scripts, and where they do."""
    return [(line, match.start()) for text in texts for line in text.lines for match in STARTS_KAFKA.finditer(line)]


def _programs(command: str, link: str) -> tuple[list[str], list[str], str]:
    """Return the programs and scripts that a unit names outside and below the link, and the folder of its start script.

    Arguments of the start script are left out, and so are those of another program.
    """
    start = STARTS_KAFKA.search(command)
    text = _OUTPUT.sub("", command if start is None else command[: start.end()])
    named = list(dict.fromkeys(_FILE.findall(text)))
    if start is None:
        named = list(dict.fromkeys(_FILE.findall(_SHELLS.sub("", text, count=1))))[:1]
    scripts = [path for path in named if posixpath.basename(path) in _SCRIPTS]
    others = [path for path in named if path not in scripts]
    below = [path for path in others if link and path.startswith(f"{link}/")]
    own = posixpath.dirname(scripts[0]) if scripts else f"{link}/bin" if link else "/usr/bin"
    return [path for path in others if path not in below], below, own


def _names_in(paths: Sequence[str], link: str) -> list[str]:
    """Return the paths below the link, relative to it."""
    return [path.removeprefix(f"{link}/") for path in dict.fromkeys(paths) if path.startswith(f"{link}/")]


@dataclass(frozen=True, slots=True)
class _Mentions:
    """The lines of the unit, of wrappers, and of what these read, and files that they name besides."""

    _lines: tuple[str, ...]
    _named: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[TextFile], named: Iterable[TextFile]) -> _Mentions:
        lines, others = (tuple(line for text in each for line in text.lines) for each in (texts, named))
        return cls(lines, others)

    def has(self, word: str) -> bool:
        """Return whether a word is written there."""
        written = re.compile(rf"{re.escape(word)}(?![\w.])")
        return any(written.search(line) for line in (*self._lines, *self._named))

    def can_have(self, option: str) -> bool:
        """Return whether an option is written there, or its part before the value outside of options that are read."""
        name = re.split("[=:]", option, maxsplit=1)[0] if option.startswith("-") else option
        written = re.compile(rf"{re.escape(name)}(?![\w.])")
        return self.has(option) or any(written.search(_without_options(line)) for line in self._lines if name in line)


def _without_options(line: str) -> str:
    for word in sorted(_options(TextFile(path="/", lines=(line,))), key=len, reverse=True):
        line = line.replace(word, " ")
    return line


def _twice(
    process: Sequence[str], given: _Given, texts: Sequence[TextFile], scope: ScriptScope
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of agents that are the same, or that open the same port, among what the environment gives and
    what scripts add to it at each start. A pair that the process has is left out: it runs with it, such as with one
    port of two addresses."""
    words = [word for word in given.all_words if word.startswith(AGENTS)]
    for name, value in additions(text.lines for text in texts):
        pieces = (_LEADING.sub("", unquoted(piece)) for piece in _pieces(value) if name in OF_KAFKA)
        words += [_resolved(scope.pattern(piece)) for piece in pieces if piece.startswith(AGENTS)]
    return tuple(
        (shown_option(one), shown_option(other))
        for number, one in enumerate(words)
        for other in words[number + 1 :]
        if (one == other or agent_port(one) == agent_port(other) != "") and not _has_both(process, one, other)
    )


def _has_both(process: Sequence[str], one: str, other: str) -> bool:
    return process.count(one) > (one == other) and other in process


def _resolved(pattern: str) -> str:
    """Return the word of an expression; as it is if it has several values."""
    word = re.sub(r"\\(.)", r"\1", re.sub(r"\(\?:([^()|]*)\)", r"\1", pattern))
    return word if re.fullmatch(pattern, word) else pattern


def _givers(texts: Iterable[TextFile]) -> tuple[str, ...]:
    """Return the files that set a variable of options themselves."""
    files = (text for text in texts if text.path.startswith("/"))
    return tuple(text.path for text in files if any(name in OF_KAFKA for name, _ in _assignments(text)))


def _next_options(
    process: Sequence[str],
    unit: UnitOptions,
    *,
    stays: _Read,
    running: _Read,
    then: _Read,
    absent: Collection[str],
    mentions: _Mentions,
    starts: bool,
    is_known: bool,
    is_java: bool,
    own: str,
    added: str,
) -> NextOptions:
    """`mentions`: texts outside of the release. `starts`: they start Kafka. `is_known`: the scripts of the release are
    `then`. `absent`: programs of the unit that the release does not have, which is a finding of its own.
    `is_java`: the unit starts Java without scripts. `own`: a folder above Kafka's jars, in each release again.

    `added`: by the scripts of a release that cannot be read. If they can, what those of the running release add in the
    same way is neither lost nor kept.
    """
    kafkas = text_of("bin/kafka-run-class.sh", added)
    defaults = ScriptScope((kafkas,), {}, is_whole=True)
    is_read = bool(then.texts) and not then.unread
    is_whole = unit.is_whole and stays.is_whole and starts
    next_texts = (*(() if is_read else (kafkas,)), *stays.texts, *then.texts)
    given, given_before = (
        _given(unit, process, stays, _Read() if is_java else one, is_java=is_java) for one in (then, running)
    )
    after = ScriptScope(next_texts, given.variables, is_whole=is_whole and then.is_whole)
    before = ScriptScope(running.texts, given_before.variables, is_whole=is_whole and running.is_whole)
    is_same = [text.lines for text in then.texts] == [text.lines for text in running.texts]
    of_scripts = {word for name, words in given.words.items() if name not in OF_JAVA for word in words}
    of_java = set(given.all_words) - of_scripts
    values = {option_key(option): option for option in given.all_words}
    kept: list[str] = []
    lost: list[LostOption] = []
    gone: list[LostOption] = []
    unclear: list[LostOption] = []
    unsure: list[LostOption] = []

    def is_kept(word: str, found: LostOption, *, is_of_script: bool, is_replaced: bool = False) -> bool:
        if is_of_script and then.is_whole:
            lost.append(found)
            return not is_known
        if is_of_script or not (running.is_whole or is_same):
            unclear.append(found)
            return False
        if is_whole and running.is_whole and not mentions.can_have(word):
            gone.extend(() if found.now else (found,))
            return False
        if not (found.now or mentions.has(word)) and (unit.is_whole or is_replaced):
            unsure.append(found)  # else the environment is unknown, which is a finding of its own
        return True

    def is_kept_entry(entry: str) -> bool:
        is_of_script = before.has_entry(entry) or class_path.OF_SCRIPT in entry
        if is_of_script and not is_known:
            return True  # the scripts of a package are replaced as a whole
        found = LostOption(
            option=f"{CLASS_PATH}{entry}",
            lines=before.lines_of_entries(without=then.texts) if is_of_script else (),
        )
        return is_kept(entry, found, is_of_script=is_of_script)

    words = iter(enumerate(process))
    for number, word in words:
        if word in class_path.OPTIONS:
            entries = next(words, (0, ""))[1]
            foreign = class_path.foreign_entries(entries, own)
            gaps = {entry for entry in foreign if not after.has_entry(entry) and not is_kept_entry(entry)}
            kept += [word, ":".join(entry for entry in entries.split(":") if entry not in gaps)]
        elif number == 0 or not word.startswith("-") or word in of_scripts or after.explains(word):
            kept.append(word)
        elif word not in of_java and not (is_read and defaults.explains(word)):
            now = values.get(option_key(word), "")
            is_of_script = before.explains(word)
            found = LostOption(
                option=shown_option(word),
                lines=before.lines_of(word, without=then.texts) if is_of_script else (),
                now=shown_option(now),
            )
            is_replaced = word in given.replaced
            kept += [word] if is_kept(word, found, is_of_script=is_of_script, is_replaced=is_replaced) else []
            kept += [now] if now in of_scripts else []  # at the place of the old value
    dropped = _dropped(process, unit, before, next_texts, {*lost, *gone, *unclear, *unsure}) if is_known else ()
    return NextOptions(
        arguments=given.among(kept),
        environment=given.all_words,
        lost=tuple(lost),
        gone=tuple(gone),
        unclear=tuple(unclear),
        unsure=tuple(unsure),
        why=(*stays.why, *running.why) if starts or not stays.is_whole else ("its command",),
        givers=_givers(stays.texts),
        twice=_twice(process, given, next_texts, after),
        unread=(*running.unread, *then.unread),
        dropped=tuple(one for one in dropped if one.path not in absent),
    )


def _dropped(
    process: Sequence[str],
    unit: UnitOptions,
    before: ScriptScope,
    next_texts: Sequence[TextFile],
    named: Collection[LostOption],
) -> Iterator[ScriptLine]:
    """Yield the lines of the scripts before that those of the next start do not have.

    Left out are those of `named`, those that set what the unit sets too, and those of options, which are compared with
    the process.
    """
    there = {line for text in next_texts for line in text.lines}
    shown = {line for one in named for line in one.lines}
    set_then = {name for line in there for name, _ in assignments(line)} | unit.variables.keys()

    def is_dropped(text: TextFile, line: str) -> bool:
        of_unit = [
            (unit.variables.get(name), None if value is None else unquoted(value))
            for name, value in set_alone(line).items()
        ]
        return not (
            line in there
            or f"{text.path}: {shown_options(line)}" in shown
            or before.gives_only(line, process)
            or (of_unit and all(now is not None and value in (None, now) for now, value in of_unit))
        )

    found = {text.path: [line for line in dict.fromkeys(text.lines) if is_dropped(text, line)] for text in before.texts}
    for text in before.texts:
        for line in found[text.path]:
            read = _sources(TextFile(path=text.path, lines=(line,)))
            if not read or any(found.get(path, [path]) for path in read):  # else each line of the file is compared
                names = {name for name, _ in assignments(line)}
                yield ScriptLine(path=text.path, text=line, sets=frozenset(names - set_then))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What Java gets of the unit's environment."""

    words: Mapping[str, tuple[str, ...]]
    """The words of options, by variable and in the order of a command line."""
    variables: Mapping[str, str]
    """Of the unit, without those that count for nothing."""
    replaced: frozenset[str]
    """The words of those."""

    @property
    def all_words(self) -> tuple[str, ...]:
        return tuple(word for words in self.words.values() for word in words)

    def among(self, kept: Sequence[str]) -> tuple[str, ...]:
        """Return a command line with the words that it has not, each in the place of its variable."""
        line = list(kept)
        place = 1
        for name, words in self.words.items():
            if name in OF_JAVA:
                continue
            there = [number for number, word in enumerate(line) if word in words]
            if _has_in_order(line, words):
                place = there[-1] + 1
                continue
            if name not in OF_KAFKA[:-1]:
                place = max((line.index(one) + 2 for one in class_path.OPTIONS if one in line), default=len(line))
            place = there[0] if there else min(place, len(line))
            line = [word for word in line if word not in words]
            line[place:place] = words
            place += len(words)
        first, last = ([word for name in names for word in self.words.get(name, ())] for names in _AROUND)
        return (*line[:1], *first, *line[1:], *last) if kept else (*first, *line, *last)


def _given(unit: UnitOptions, process: Sequence[str], stays: _Read, scripts: _Read, *, is_java: bool) -> _Given:
    """Leave out variables that no script gives to Java, and those that a script sets without their value.

    If that depends on what the script finds, such as a file, only what the process has is certain.
    """
    texts = (*stays.texts, *scripts.texts)
    replaced = ReplacedVariables.of(text.lines for text in texts)
    is_read = is_java or (_starts_kafka(stays.texts) and stays.is_whole and scripts.is_whole)
    named = {name for text in texts for line in text.lines for name in names_anywhere(line)}
    used = {*OF_JAVA, *(() if is_java else OF_KAFKA), *named}
    words: dict[str, tuple[str, ...]] = {}
    for name, found in unit.environment.items():
        is_replaced = replaced.is_replaced(name)
        if (name in used or not is_read) and not is_replaced:
            words[name] = found if is_replaced is False else tuple(word for word in found if word in process)
    lost = unit.environment.keys() - words.keys()
    no_class_path = {class_path.VARIABLE} if replaced.is_replaced(class_path.VARIABLE) else set()
    return _Given(
        words={name: found for name, found in words.items() if found},
        variables={name: value for name, value in unit.variables.items() if name not in lost | no_class_path},
        replaced=frozenset(word for name in lost for word in unit.environment[name]),
    )


def _has_in_order(line: Sequence[str], words: Sequence[str]) -> bool:
    rest = iter(line)
    return all(word in rest for word in words)


class _Scripts(TextFiles):
    """Scripts with the files that they read as parts of themselves."""

    def read_all(self, paths: Iterable[str]) -> None:
        """Read scripts, then the files that they read, which can read others once more."""
        for _ in range(3):
            paths = [one for text in self.read(paths) for one in _sources(text)]

    def all_of(self, paths: Sequence[str], *more: TextFile) -> _Read:
        """Return the texts of files, and of those that they read. A file that does not exist is left out."""
        found, missing = list(more), [path for path in paths if path in self.unread]
        texts = [*more, *(self.texts[path] for path in paths if path in self.texts)]
        why, is_read = list(missing), not missing
        while texts:
            text = texts.pop(0)
            if text in found and text not in more:
                continue
            found += [] if text in more else [text]
            why += self._unclear(text, is_of_unit=text in more)
            for path in _sources(text):
                texts += [self.texts[path]] if path in self.texts else []
                if path not in self.asked - self.unread or set(path) & _OF_SHELL:
                    is_read = is_read and is_profile(text.path)  # start_environment.py reads what this one reads
                    why.append(path if path in self.unread else f"{text.path}: {path}")
        return _Read(texts=tuple(found), unread=tuple(missing), why=tuple(dict.fromkeys(why)), is_read=is_read)

    def _unclear(self, text: TextFile, *, is_of_unit: bool) -> list[str]:
        if not is_shell(text.interpreter):
            return [f"{text.path}: {text.interpreter}"]
        found = unclear_commands(text.lines, programs=self.texts, is_of_unit=is_of_unit)
        return [f"{text.path}: {shown_options(one)}" for one in found]

    def read_named(self, read: _Read, *, without: Collection[str]) -> tuple[TextFile, ...]:
        """Return the files that unclear texts name, such as that of `$(cat /etc/kafka/jvm.options)`."""
        if read.is_whole:
            return ()
        lines = (_OUTPUT.sub("", line) for text in read.texts for line in text.lines)
        named = dict.fromkeys(path for line in lines for path in _NAMED.findall(line) if path not in without)
        paths = [path for path in named if "bin/" not in path and not path.startswith(("/dev/", "/proc/", "/sys/"))]
        self.read(paths[:_MOST_NAMED])
        return tuple(self.texts[path] for path in paths if path in self.texts)


def _sources(text: TextFile) -> list[str]:
    """Return the files that a script reads as a part of it. One whose path is not plain is never found."""
    folder = posixpath.dirname(text.path)
    known = _certain_values(text)
    found = []
    for line in text.lines:
        for path in SOURCE.findall(_OWN_FOLDER.sub(folder, _with_values(line, known))):
            found.append(posixpath.normpath(path) if path.startswith("/") else path)
    return found


def _certain_values(text: TextFile) -> dict[str, str]:
    """Return the variables that a script sets once, and always, to a plain value."""
    values: dict[str, list[str]] = {}
    for line in text.lines:
        for name, value in assignments(line):
            values.setdefault(name, []).append(unquoted(value))
    plain = {name: value for name, (value, *more) in values.items() if not more and not set(value) & _OF_SHELL}
    replaced = ReplacedVariables.of([text.lines])
    return {name: value for name, value in plain.items() if replaced.is_replaced(name)}
