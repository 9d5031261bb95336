"""Whether the text of a start's script shows every option that it can give to a JVM.

This is a list of what is understood: assignments, conditions, loops over words, commands that set no variable, and the
start itself. Whatever else a script has, such as `read`, `eval`, `${NAME%x}` or the output of a program, can give
options that no line shows. Source: POSIX.1-2017, Shell Command Language, and bash(1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_rollout.nodes.runtimes.hosts.shell_lines import BRACES, COMMAND, REFERENCE, unquoted

_SINGLE = r"'[^']*'"
_DOUBLE = rf"\"(?>(?:\\.|{COMMAND}|{BRACES}|[^\"\\])*)\""
_WORD = re.compile(rf"(?>(?:{_SINGLE}|{_DOUBLE}|{COMMAND}|{BRACES}|\\.|[^\s\"'`;|&<>()\\])+)", re.DOTALL)
_ATOM = re.compile(rf"({_SINGLE})|({_DOUBLE})|\\.|{COMMAND}|{BRACES}|[^\"'\\]", re.DOTALL)
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_SEPARATOR = re.compile(r"\n|;;&|;;|;&|&&|\|\||\|&|[;|()]|&(?!>)")
_CONDITION = re.compile(
    rf"\[\[\s(?>(?:{_SINGLE}|{_DOUBLE}|{COMMAND}|{BRACES}|\\.|(?!\s\]\])[^\"'\\])*)\s\]\]", re.DOTALL
)
_ARITHMETIC = re.compile(r"\(\(\s*[\w$\s<>]*\)\)")
_FUNCTION = re.compile(r"(?:function[ \t]+([\w.:-]+)[ \t]*(?:\([ \t]*\))?|([\w.:-]+)[ \t]*\([ \t]*\))")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_LABEL = re.compile(r"(?>\s*)(?!esac\b)\(?[^;\n]*?\)")
_REDIRECTION = re.compile(r"(?:\d*|&)(>>|>\||>&|>|<<<|<<-?|<&|<>|<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "{", "}", "!"})
# They set no variable, and start nothing. Without those that write files, which a start could read then.
HARMLESS = frozenset(
    {":", "true", "false", "echo", "test", "[", "[[", "exit", "return", "break", "continue", "cd", "pwd", "umask"}
    | {"ulimit", "shift", "wait", "type", "shopt", "mkdir", "chown", "chmod", "rm", "touch", "ls", "sleep"}
    | {"logger", "printf", "hostname", "id", "mountpoint", "grep", "pgrep", "date", "cat", "unset"}
)
_DECLARES = frozenset({"export", "readonly", "local", "declare", "typeset"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh"})
# They start a program with the environment that they have, and the arguments that they get.
_LAUNCHERS = frozenset(
    {"exec", "nohup", "command", "nice", "ionice", "numactl", "taskset", "setsid", "chrt", "prlimit", "stdbuf", "env"}
)
_OF_LAUNCHER = re.compile(r"-\S*|[\d,]+|0x[\da-f]+")
_STARTED = re.compile(r"(?:.*/)?(?:kafka-(?:server-start|run-class)(?:\.sh)?|java|kafka\.Kafka)", re.DOTALL)
_ARGUMENTS = re.compile(r"\"?\$(?:[@1]|\{[@1]\})\"?")
_VARIABLE = re.compile(r"\"?\$\{?([A-Za-z_]\w*)\}?\"?")
# Each prints one word that is no option: a name, a path or a number.
_PLAIN_OUTPUT = re.compile(
    r"\s*(?:dirname|basename|readlink|realpath|pwd|hostname|uname|nproc|id|whoami|date|expr|cygpath|which|arch|cd|"
    r"command\s+-v)(?=\s|$)"
)
_PIPED = re.compile(r"&&|\|\||[;|]")
_EXPANDS = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
# An option whose name, or its beginning, is an argument or in a variable: `-$1`, `${1}mx6g`.
_PARTED = re.compile(r"(?:^|[\s\"'=(])(?:-{1,2}[\"']?(?=[$`])|\$(?:\d|\{\d\})[\"']?\w)")
# Variables of options, and those that Kafka's scripts put into options.
_GIVES = re.compile(r"\w*(?:OPT|ARG|DEBUG)\w*|JMX_PORT|LOG_DIR")
_OF_SHELL = frozenset({"IFS", "BASH_ENV", "ENV", "SHELLOPTS"})
_INTERPRETER = re.compile(r"(?:/\S*/)?(?:env\s+)?(?:/\S*/)?(?:sh|bash|dash|ash|ksh)(?:\s+-[aeufvx]+)*\s*")
_OF_UNIT = re.compile(r"(?:\S*/)?(?:sh|bash|dash|ash|ksh)(?:\s+-[aeux]+)*\s+-[aeux]*c\s+(.*)", re.DOTALL)
LONGEST = 50_000  # characters of a script that is understood


@dataclass(slots=True)
class _Command:
    words: list[str] = field(default_factory=list)
    arrays: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    is_understood: bool = True


@dataclass(slots=True)
class _Value:
    """What an assignment or an argument is made of."""

    text: str
    uses: set[str]
    is_shown: bool
    """All that it can be is in the text, or in `uses`."""


def is_shell(interpreter: str) -> bool:
    """Return whether the first line of a script (after `#!`; empty without one) names a shell that is understood."""
    return not interpreter or _INTERPRETER.fullmatch(interpreter) is not None


def unclear_commands(lines: Sequence[str], *, programs: Collection[str] = (), is_of_unit: bool = False) -> list[str]:
    """Return the commands of a script that can give a JVM options which its text does not show.

    `programs`: scripts that were read. `is_of_unit`: the lines are the command of a unit, without its quotes.
    """
    text = "\n".join(lines)
    if is_of_unit and (command := _OF_UNIT.fullmatch(text.strip())) is not None:
        text = command[1].strip("'") if command[1].startswith("'") else command[1]
    if len(text) > LONGEST:
        return ["a script of this length"]
    return list(dict.fromkeys(_Script(text, programs).unclear()))


class _Script:
    def __init__(self, text: str, programs: Collection[str]) -> None:
        self._text, self._programs = text, programs
        self._current = _Command()
        self._cases: list[bool] = []
        """Of each open `case`: a label follows."""
        self._functions: set[str] = set()
        self._commands: list[_Command] = []
        self._values: dict[str, list[_Value]] = {}
        self._given: set[str] = set()
        """Variables among the arguments of a start."""

    def unclear(self) -> Iterator[str]:
        self._parse()
        sourced = {one.words[1] for one in self._commands if len(one.words) > 1 and one.words[0] in (".", "source")}
        for one in self._commands:
            for match in REFERENCE.finditer(" ".join(one.words)):
                if match[1] and match[2] in (":=", "="):
                    self._set(match[1], match[3])
            written = [path for path in one.outputs if unquoted(path) != "/dev/null"]
            is_start = self._is_understood(one)
            is_plain = is_start is True or not any("$" in path or path in sourced for path in written)
            if not one.is_understood or is_start is None or not is_plain:
                yield " ".join([*one.words, *(f"{name}=({value})" for name, value in one.arrays)])[:80]
        gives, more = set[str](), {name for name in self._values if _GIVES.fullmatch(name)} | self._given
        while more := more - gives - {"CLASSPATH"}:  # it is one word, after an option of its own
            gives |= more
            more = {used for name in more for one in self._values.get(name, ()) for used in one.uses}
        for name in sorted(gives):
            for value in self._values.get(name, ()):
                if not value.is_shown or _PARTED.search(value.text):
                    yield f"{name}={value.text}"[:80]
        yield from sorted(self._values.keys() & _OF_SHELL)

    def _parse(self) -> None:
        at = 0
        while at < len(self._text):
            for take in (self._label, self._space, self._block, self._array, self._redirection, self._end, self._word):
                if (end := take(at)) is not None:
                    at = end
                    break
            else:
                self._current.is_understood = False  # a quote that does not end
                at += 1
        self._commands.append(self._current)

    def _label(self, at: int) -> int | None:
        match = _LABEL.match(self._text, at) if self._cases and self._cases[-1] else None
        if match:
            self._cases[-1] = False
        return match.end() if match else None

    def _space(self, at: int) -> int | None:
        match = _BLANK.match(self._text, at) or _COMMENT.match(self._text, at)
        return match.end() if match else None

    def _block(self, at: int) -> int | None:
        """Read a condition, or the name of a function, where a command begins."""
        if self._current.words or self._current.arrays:
            return None
        if self._text.startswith("((", at):
            self._current.is_understood = _ARITHMETIC.match(self._text, at) is not None
        if match := _CONDITION.match(self._text, at) or _ARITHMETIC.match(self._text, at):
            self._current.words += ["[[", match[0]]
        elif match := _FUNCTION.match(self._text, at):
            self._functions.add(match[1] or match[2])
        return match.end() if match else None

    def _array(self, at: int) -> int | None:
        match = _ARRAY.match(self._text, at)
        if match is None:
            return None
        end = self._end_of_array(match.end())
        self._current.arrays.append((match[0].rstrip("+=("), self._text[match.end() : end]))
        return end + 1

    def _redirection(self, at: int) -> int | None:
        match = _REDIRECTION.match(self._text, at)
        if match is None:
            return None
        blank = _BLANK.match(self._text, match.end())
        begin = blank.end() if blank else match.end()
        target = _WORD.match(self._text, begin)
        if target is None or match[1] in ("<<", "<<-"):  # `<(…)` has none
            self._current.is_understood = False
        elif match[1][0] == ">" and match[1] != ">&":
            self._current.outputs.append(target[0])
        return target.end() if target else begin + 1

    def _end(self, at: int) -> int | None:
        match = _SEPARATOR.match(self._text, at)
        if match is None:
            return None
        if self._cases and match[0] in (";;", ";;&", ";&"):
            self._cases[-1] = True
        self._commands.append(self._current)
        self._current = _Command()
        return match.end()

    def _word(self, at: int) -> int | None:
        match = _WORD.match(self._text, at)
        if match is None:
            return None
        words = self._current.words
        if not words and match[0] == "esac":
            self._cases[-1:] = []
        elif words or match[0] not in _KEYWORDS:
            words.append(match[0])
        if len(words) == 3 and words[0] == "case" and words[2] == "in":
            self._cases.append(True)
            self._current = _Command()
        return match.end()

    def _end_of_array(self, at: int) -> int:
        while at < len(self._text) and self._text[at] != ")":
            match = _WORD.match(self._text, at)
            at = match.end() if match else at + 1
        return at

    def _set(self, name: str, text: str) -> None:
        self._values.setdefault(name, []).append(_value(text))

    def _is_understood(self, command: _Command) -> bool | None:
        """Return whether a command is the start, after its assignments were noted; None: it is not understood."""
        for name, text in command.arrays:
            self._set(name, text)
        words = self._after_assignments(command.words)
        if not words:
            return False
        head, *more = words
        name = unquoted(head)
        if name == "for":
            if len(more) > 1 and more[1] != "in":
                return None
            self._set(more[0] if more else "", " ".join(more[2:]))
            return False if more and _NAME.fullmatch(more[0]) else None
        if name in _DECLARES:
            return self._declares(name, more)
        if name == "set":
            words = [word for word in more if not re.fullmatch(r"[-+][a-zA-Z]+|pipefail|errexit|nounset", word)]
            return False if not words or (words[0] == "--" and all(map(_is_shown, words))) else None
        if name in ("printf", "command") and more[:1] == ["-v"]:
            return False if name == "command" else None
        if name in (".", "source"):
            return False if len(more) == 1 else None
        if name in self._functions:
            return False if all(map(_is_shown, more)) else None
        if name in HARMLESS or name.removeprefix("/usr").removeprefix("/bin/") in HARMLESS:
            return False
        return self._is_start(words)

    def _after_assignments(self, words: list[str]) -> list[str]:
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            self._set(match[1], match[2])
            words = words[1:]
        return words

    def _declares(self, name: str, words: Sequence[str]) -> bool | None:
        for word in words:
            if match := _ASSIGNMENT.fullmatch(word):
                self._set(match[1], match[2])
            elif not (_NAME.fullmatch(word) or re.fullmatch(r"-[arx]+", word) or (word == "-n" and name == "export")):
                return None
        return False

    def _is_start(self, words: list[str]) -> bool | None:
        launcher = ""
        while words and (name := unquoted(words[0]).rpartition("/")[2]) in _LAUNCHERS:
            launcher, words = name, words[1:]
            if launcher in ("env", "exec", "command"):
                words = self._after_assignments(words) if launcher == "env" else words
                continue
            while words and _OF_LAUNCHER.fullmatch(words[0]):
                words = words[1:]
        if not words:
            return False if launcher == "exec" else None
        program, *arguments = words
        path = unquoted(program)
        if path.rpartition("/")[2] in _SHELLS:
            while arguments and re.fullmatch(r"-[aeux]+", arguments[0]):
                arguments = arguments[1:]
            path, arguments = (unquoted(arguments[0]) if arguments else "", arguments[1:])
            is_known = path in self._programs or _STARTED.fullmatch(path) is not None
        else:
            variable = _VARIABLE.fullmatch(program)
            named = [unquoted(one.text) for one in self._values.get(variable[1], ())] if variable else [path]
            is_known = bool(named) and all(one in self._programs or _STARTED.fullmatch(one) for one in named)
            is_known = is_known or _ARGUMENTS.fullmatch(program) is not None
        if not is_known or not _is_shown(program):
            return None
        for one in map(_value, arguments):
            if not one.is_shown or _PARTED.search(one.text):
                return None
            self._given |= one.uses
        return True


def _is_shown(word: str) -> bool:
    return _value(word).is_shown


def _value(text: str) -> _Value:
    uses: set[str] = set()
    expanded = plain = ""  # without single quotes, and without references and double quotes, too
    for match in _ATOM.finditer(text):
        is_plain = len(match[0]) == 1
        if plain.endswith("$") and (match[1] or match[2]):
            return _Value(text, uses, is_shown=False)  # `$'\\x2d'`, `$"…"`
        if match[1] and re.search(r"[$`]", match[1]):
            return _Value(text, uses, is_shown=False)  # the shell leaves it, or reads it later
        plain += match[0] if is_plain else " "
        expanded += " " if match[1] or match[0].startswith("\\") else match[0]
    found = [_shows(match, uses) for match in REFERENCE.finditer(expanded)]
    return _Value(text, uses, is_shown=all(found) and _EXPANDS.search(plain) is None)


def _shows(match: re.Match[str], uses: set[str]) -> bool:
    """Return whether a reference is understood, and note its variables."""
    if match[5]:
        uses.add(match[5])
        return True
    if match[1]:
        uses.add(match[1])
        if match[2]:
            inner = _value(match[3])
            uses |= inner.uses
            return inner.is_shown
        return not match[4]
    written = match[0]
    if written.startswith("${"):
        return written.startswith("${#")
    if written.startswith("$(("):
        return "=" not in written
    inside = written[2:-1] if written.startswith("$(") else written[1:-1]
    outer = REFERENCE.sub("x", inside)
    return all(map(_PLAIN_OUTPUT.match, _PIPED.split(outer))) and "|" not in outer and _is_shown(inside)
