"""The environment of a systemd unit, read as systemd reads it, and the words that the JVM gets from it.

Source: parse_env_file_internal in src/basic/env-file.c of systemd, for EnvironmentFile=. Quotes count only where a
value begins, and a value in quotes can have several lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from kafka_rollout.model.node_log import hide_credentials

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEWLINE, _SPACE, _COMMENT = "\n\r", " \t\n\r", "#;"
_ESCAPED_IN_QUOTES = '"\\`$'
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"]+)(?=\s|$)')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)")
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)\}|(?<!\$)\$([A-Za-z_]\w*)")
OF_SYSTEMD = re.compile(
    r"HOME|USER|LOGNAME|SHELL|PATH|LANG|(?:RUNTIME|STATE|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY|INVOCATION_ID|"
    r"SYSTEMD_EXEC_PID|EXEC_PID|MANAGERPID|MAINPID|JOURNAL_STREAM"
)
_OTHER = re.compile(r"KAFKA_\w*OPTS")
OF_KAFKA = (
    *("KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS"),
    *("KAFKA_JMX_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS"),
)
"""Variables that kafka-run-class.sh gives to Java, in its order. The class path is before the last one."""
BEFORE_COMMAND_LINE, AFTER_COMMAND_LINE = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"), ("_JAVA_OPTIONS",)
"""Variables that Java itself reads, before its command line and after it: the last value of an option counts."""
OF_JAVA = (*BEFORE_COMMAND_LINE, *AFTER_COMMAND_LINE)


class UnclearError(ValueError):
    """A text that the versions of systemd or of Java read in different ways. The message is the end of a sentence."""


def parse_file(text: str) -> dict[str, str]:
    """Return the variables of a file of EnvironmentFile=. Raises UnclearError for a comment that ends with `\\` and
    hides a variable for some versions only.

    systemd before 254 takes the next line as a part of such a comment, later versions do not. systemd ignores a name
    that is not one of a variable.
    """
    found = _Parser(text, joins_comments=True).variables
    if found != _Parser(text, joins_comments=False).variables:
        raise UnclearError("has a comment that ends with a backslash")
    return found


class _Parser:
    def __init__(self, text: str, *, joins_comments: bool) -> None:
        """`joins_comments`: a backslash at the end of a comment makes the next line a part of it."""
        self._text, self._at, self._joins = text, 0, joins_comments
        self.variables: dict[str, str] = {}
        while self._at < len(text):
            char = text[self._at]
            if char in _SPACE:
                self._at += 1
            elif char in _COMMENT:
                self._skip_comment()
            else:
                self._read_variable()

    def _until(self, ends: str) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends:
            self._at += 1
        return self._text[begin : self._at]

    def _skip_comment(self) -> None:
        line = self._until(_NEWLINE)
        while self._joins and (len(line) - len(line.rstrip("\\"))) % 2 and self._next():
            line = self._until(_NEWLINE)

    def _read_variable(self) -> None:
        name = self._until(f"={_NEWLINE}").rstrip(_SPACE)
        if self._next() != "=":
            return  # a line without a value
        value = self._read_value()
        if _NAME.fullmatch(name):
            self.variables[name] = value

    def _next(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        return char

    def _read_value(self) -> str:
        """Read to the end of the line, which quotes and backslashes can move."""
        value, kept, plain = "", 0, False  # `kept`: characters that no white space at the end can remove
        while (char := self._next()) and char not in _NEWLINE:
            if char == "\\":
                escaped = self._next()
                value += "" if escaped in _NEWLINE else escaped
                plain, kept = True, len(value)
            elif plain:
                value += char
                kept = kept if char in _SPACE else len(value)
            elif char == "'":
                value += self._until(char)
                self._next()
                kept = len(value)
            elif char == '"':
                value += self._in_double_quotes()
                kept = len(value)
            elif char not in _SPACE:
                value += char
                plain, kept = True, len(value)
        return value[:kept]

    def _in_double_quotes(self) -> str:
        value = ""
        while (char := self._next()) and char != '"':
            if char != "\\":
                value += char
            elif (escaped := self._next()) in _ESCAPED_IN_QUOTES:
                value += escaped
            elif escaped != "\n":
                value += f"\\{escaped}"
        return value


def parse_shown(line: str) -> dict[str, str]:
    """Return the variables of Environment=, as `systemctl show` prints them. Raises UnclearError for another text.

    A word with special characters is in double quotes as a whole, with escapes as in C (shell_maybe_quote).
    """
    words, at = [], 0
    for match in _WORD.finditer(line):
        if line[at : match.start()].strip():
            break
        words.append(match[2] if match[1] is None else _ESCAPE.sub(_unescaped, match[1]))
        at = match.end()
    if line[at:].strip():
        raise UnclearError(f"has an Environment that cannot be read: {hide_credentials(line[at:].strip())[:60]}")
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU":
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code.isdigit() else _CONTROL.get(code, code)


def put_in(text: str, variables: Mapping[str, str], *, is_whole: bool = False) -> str:
    """Return a command of a unit with the values of its variables, `${NAME}` and `$NAME`, as far as they are known.

    `is_whole`: all variables are known but those that systemd sets itself; another one is empty (systemd.service(5)).
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return variables.get(name, "" if is_whole and not OF_SYSTEMD.fullmatch(name) else match[0])

    return _VARIABLE.sub(value, text)


def jvm_words(variables: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the words of the JVM's options by variable, in the order of its command line.

    kafka-run-class.sh parts the values at white space and leaves quotes in them. Of other KAFKA_*OPTS, the scripts of a
    start decide. In those that Java reads, quotes group and a backslash escapes nothing. Raises UnclearError for a
    quote that does not end.
    """
    others = [name for name in variables if _OTHER.fullmatch(name) and name not in OF_KAFKA]
    words: dict[str, tuple[str, ...]] = {}
    for name in (*BEFORE_COMMAND_LINE, *OF_KAFKA, *others, *AFTER_COMMAND_LINE):
        value = variables.get(name, "")
        if name not in OF_JAVA:
            words[name] = tuple(value.split())
            continue
        lexer = shlex.shlex(value, posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
        try:
            words[name] = tuple(lexer)
        except ValueError as error:
            raise UnclearError(f"has a quote in {name} that does not end") from error
    return {name: found for name, found in words.items() if found}
