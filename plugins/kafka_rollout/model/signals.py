"""Commands of a stop, as far as they are known to send no signal to another Kafka of the host.

1. A command is known if its program and its words have a form of this module. Every other one can reach every process.
2. The text of a shell is cut into its commands, with those of its substitutions. Each of them must be known, whatever
   runs before it.
3. The value of a variable or a substitution is unknown, apart from $MAINPID, the numbers in one file, which the host
   has reported, and a literal that the text assigns once: after it, until the end of its block, if no other command
   decides whether it is assigned, and not in single quotes, which can be the text of another shell.
4. Only a program that is known to have the rights of its user is bound by kill(2).
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafka_rollout.model.host_state import JavaProcess, UnitStop
from kafka_rollout.model.starts import MAIN_CLASS

STOP_SCRIPT = "kafka-server-stop"
_STOP_SCRIPTS = (STOP_SCRIPT, f"{STOP_SCRIPT}.sh")
_OF_KAFKA = re.compile(r"kafka\\?\.Kafka")  # in each kafka-server-stop.sh of Kafka
_WITH_FILTERS = re.compile(r"(?s)(?=.*--process-role=).*--node-id=")  # since 3.7.0 (KIP-979)
_FOLDERS = ("", "/bin", "/usr/bin", "/sbin", "/usr/sbin")
_SHELLS = ("sh", "bash", "dash", "ksh")
_KEYWORDS = ("if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "exec")
_DECLARE = ("export", "local", "readonly")
# They end nothing, and execute none of their words.
_HARMLESS = re.compile(
    r":|\[\[?|basename|break|cat|cd|continue|cut|date|dirname|echo|exit|false|grep|head|hostname|id|logger|ls|mkdir|pgrep|"
    r"pidof|printf|ps|readlink|return|seq|set|sleep|stat|sync|tail|test|touch|tr|true|umask|uname|wait|wc|whoami"
)
_SIGNALLERS = ("killall5", "skill", "fuser")
_OF_USER = ("-u", "--euid", "-U", "--uid")
_LITERAL = r"[\w./@:,+-]"
# What harmless programs must have as their words.
_FORMS = {
    "rm": re.compile(rf"(?:(?:-\w+|--|/{_LITERAL}+)(?: |$))+"),
    "awk": re.compile(r"\{ ?print \$\d+;? ?\}"),
    "curl": re.compile(r"(?!.*(?:--(?:unix|abs|conf)|(?:^| )-\w*K)).*", re.DOTALL),
    "printf": re.compile(r"(?!-v).*", re.DOTALL),
}
_XARGS_KILL = re.compile(r"(?:(?:-[rt0]+|-n ?\d+|--no-run-if-empty) )*(?:/usr)?(?:/bin/)?kill(?: -\w+)*")
# Before the path of a file whose content is the word; a value; the end of a command.
_BY_FILE, _UNKNOWN, _END = "\ue000", "\ue001", "\ue002"
_OF_FILE = re.compile(rf"(?:\$\(|`)\s*(?:cat\s|<)\s*([\"']?)(/(?!proc/){_LITERAL}+)\1(?:\s*2>\s*/dev/null)?\s*(?:\)|`)")
_NUMBER = re.compile(r"\$\(\([\w\s+*/%<>$-]*\)\)")
_SUBSTITUTION = re.compile(r"\$\(([^()`]*)\)|`([^()`]*)`")
_VALUE = re.compile(
    rf"(?:(?:{'|'.join(_DECLARE)})\s+)?(\w+)=([\"']?)((?:{_BY_FILE}|{_LITERAL})*)\2(?=\s*(?:[\n;]|&&|\|\||$))"
)
# What begins a block → what ends it.
_BLOCKS = {"if": "fi", "while": "done", "until": "done", "for": "done", "{": "}"}
_PARTS = {"then": "fi", "elif": "fi", "else": "fi", "do": "done"}
_UNREAD_BLOCKS = ("case", "select", "function")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SPECIAL = re.compile(r"PATH|IFS|ENV|BASH\w*|LD_\w+|MAINPID")  # they decide how later words are read
_REDIRECTION = re.compile(
    r"(?:(?<=\s)\d|&)?>>?\s*(?:&\d|/dev/(?:null|stderr|stdout)\b|/var/log/(?:(?!\.\.)[\w./-])+)|<\s*/dev/null\b"
)
_TOKEN = re.compile(r"'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|\\.|([;\n|&()])|.", re.DOTALL)
_MAIN = re.compile(r"-?\$(?:MAINPID|\{MAINPID\})")
_SIGNAL = re.compile(r"(?:--signal=|-)((?:SIG)?[A-Z]{3,}\d*|\d+)")
_FILTER = re.compile(r"--(node-id|process-role)=([^ ]*)")
_PLAIN = re.compile(r"(?:[\w/=, -]|\\?\.|\[[\w/]\])+")  # a pattern whose text shows whether it is in a command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A command that can reach other processes than those of its unit."""

    text: str
    path: str
    """Of its script; empty: the unit has the command itself."""
    selects: Callable[[JavaProcess], bool | None]
    """Whether it reaches a process; None: unknown."""
    obeys_user: bool = True
    """It has the rights of its user, and no others."""
    why: str = ""
    """Why it is unknown, the end of a sentence; empty: it has no known form."""


@dataclass(frozen=True, slots=True)
class StopReader:
    """Reads the commands of the stop of a unit."""

    stop: UnitStop
    configuration: str
    """The file of its node."""

    def signals(self, command: str) -> Iterator[Signal]:
        """Yield the signals of a command as systemd shows it, without quotes. systemd replaces `$$`, and `${NAME}` by a
        value that is not known here."""
        text = re.sub(r"(\$\$)|\$\{(?!MAINPID\})\w+\}", lambda found: "$" if found[1] else _UNKNOWN, command)
        program, _, rest = text.partition(" ")
        of_shell = re.fullmatch(r"-[a-z]*c\s+(.*)", rest, re.DOTALL) if _system_name(program) in _SHELLS else None
        if of_shell is None:
            found = [*self._of_words(text.split(), "", ())]
        else:
            inner = re.sub(r"\A(['\"])([^'\"]*)\1\Z", r"\2", of_shell[1])
            found = [*self._of_text(inner, "", ())]
            # If the unit has no quotes either, the shell executes the first word without the others.
            if (first := re.match(r"[\w.-]*/[\w./-]*(?=\s)", of_shell[1])) is not None:
                alone = self._of_words([first[0]], "", ())
                found += [replace(signal, selects=partial(_may_select, signal)) for signal in alone]
        yield from (signal if signal.path else replace(signal, text=command) for signal in found)

    def _of_text(self, text: str, path: str, seen: Sequence[str]) -> Iterator[Signal]:
        """`path`: of the script that has it; `seen`: the scripts that lead to the text."""
        text = _put_in(_NUMBER.sub(_UNKNOWN, text))
        while (found := _SUBSTITUTION.search(text)) is not None:
            yield from self._of_text(found[1] or found[2] or "", path, seen)
            text = text[: found.start()] + _UNKNOWN + text[found.end() :]
        text = _REDIRECTION.sub(" ", text)
        tokens = [*_TOKEN.finditer(text)]
        unclear = [token.start() for token in tokens if token[0] in tuple("'\"`<>\\")]
        unclear += [text.index(one) for one in ("$(", "$'") if one in text]
        if unclear:
            line = text[text.rfind("\n", 0, unclear[0]) + 1 :].partition("\n")[0]
            yield Signal(text=_shown(line), path=path, selects=_cannot_tell, obeys_user=False)
            return
        for segment in "".join(_END if token[1] else token[0] for token in tokens).split(_END):
            yield from self._of_words(shlex.split(segment), path, seen)

    def _of_words(self, words: Sequence[str], path: str, seen: Sequence[str]) -> Iterator[Signal]:
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if not words or _only_assigns(words):
            return
        program, args = words[0], list(words[1:])
        name, scripts = _system_name(program), self.stop.scripts
        signal = Signal(text=_shown(" ".join(words)), path=path, selects=_cannot_tell)
        if posixpath.basename(program) in _STOP_SCRIPTS and _OF_KAFKA.search(scripts.get(program, MAIN_CLASS)):
            yield replace(signal, selects=partial(_by_script, args, scripts.get(program)))
        elif name == "kill":
            yield replace(signal, selects=partial(self._is_killed, args))
        elif name == "pkill":
            yield replace(signal, selects=partial(self._is_found, args))
        elif name == "killall":
            yield replace(signal, selects=partial(_is_named, args))
        elif name in _SIGNALLERS or (name == "xargs" and _XARGS_KILL.fullmatch(" ".join(args))):
            yield signal
        elif _HARMLESS.fullmatch(name) or name in _FORMS:
            if name in _FORMS and _FORMS[name].fullmatch(" ".join(args)) is None:
                yield replace(signal, obeys_user=False)
        elif name in _SHELLS and len(args) == 2 and re.fullmatch(r"-[a-z]*c", args[0]):
            yield from self._of_text(args[1], path, seen)
        elif name in _SHELLS and args[:1] and args[0].startswith("/"):
            yield from self._of_words(args, path, seen)
        elif program in scripts and program not in seen:
            yield from self._of_text(_with_arguments(scripts[program], args), program, (*seen, program))
        else:
            is_file = program.startswith("/") and not name and program not in scripts
            why = f"{program} is not a shell script that the SSH user can read" if is_file else ""
            yield replace(signal, obeys_user=False, why=why)

    def _is_killed(self, args: Sequence[str], process: JavaProcess) -> bool | None:
        if not args:
            return False
        targets, signal = [*args], ""
        while targets and targets[0].startswith("-") and targets[0] != "--":
            if targets[0] in ("-s", "-n", "--signal"):
                signal, targets = "".join(targets[1:2]), targets[2:]
            elif (found := _SIGNAL.fullmatch(targets[0])) is not None and not signal:
                signal, targets = found[1], targets[1:]
            else:
                break
        if signal == "0":
            return False
        if targets[:1] == ["--"]:
            del targets[0]
        return any_of(self._is_target(one, process) for one in targets) if targets else None

    def _is_target(self, word: str, process: JavaProcess) -> bool | None:
        if word.startswith(_BY_FILE):
            return self._is_in_file(word[1:], process)
        return False if _MAIN.fullmatch(word) else None

    def _is_in_file(self, file: str, process: JavaProcess) -> bool | None:
        pids = self.stop.pid_files.get(file)
        if pids is None or (self.stop.processes is None and not self.stop.own.issuperset(pids)):
            return None
        return process.pid in pids

    def _is_found(self, args: Sequence[str], process: JavaProcess) -> bool | None:
        """What it selects meets all its options, so that those which are not judged only narrow it."""
        left, names, proofs, signal, is_full, is_narrow = [*args], list[str](), list[bool | None](), "", False, False
        while left:
            word = left.pop(0)
            option, is_set, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if (found := _SIGNAL.fullmatch(word)) is not None:
                signal = found[1]
            elif option in ("--signal", "-F", "--pidfile", "-u", "--euid", "-U", "--uid", "-P", "-g", "-G", "-s"):
                value = value if is_set else left.pop(0) if left else ""
                signal = value if option == "--signal" else signal
                proofs += [self._is_in_file(value, process)] if option in ("-F", "--pidfile") else []
                if option in _OF_USER and _is_user(value, process):
                    proofs.append(True)
                else:
                    is_narrow |= option not in ("--signal", "-F", "--pidfile")
            elif re.fullmatch(r"-[fxeno]+|--(?:full|exact|echo)", word):
                is_full |= word == "--full" or (not word.startswith("--") and "f" in word)
                is_narrow |= word == "--exact" or (not word.startswith("--") and not {*word[1:]} <= {*"fe"})
            elif word.startswith("-"):
                return None
            else:
                names.append(word)
        if signal == "0" or not args:
            return False
        if names:  # several are one pattern without its quotes, or the last ones belong to the shell
            patterns = [" ".join(names[:end]) for end in range(1, len(names) + 1)]
            matches = self._matches if is_full else _is_name
            is_narrow |= len(names) > 1
            proofs.append(any_of(matches(pattern, process) for pattern in patterns))
        if not proofs or (is_narrow and False not in proofs):
            return None
        return False if False in proofs else None if None in proofs else True

    def _matches(self, pattern: str, process: JavaProcess) -> bool | None:
        if _PLAIN.fullmatch(pattern) is None:
            return None
        shown = " ".join(process.command or ("java", MAIN_CLASS))
        if re.search(pattern, shown):
            return True
        if process.pid and process.command:
            return False
        # Nobody has seen its command line: it is known to differ in the file alone.
        own = re.sub(r"\\|\[([\w/])\]", r"\1", pattern)
        differs = bool(self.configuration) and self.configuration in own and process.configuration != self.configuration
        return False if differs else None


def _cannot_tell(process: JavaProcess) -> None:
    return None


def _may_select(signal: Signal, process: JavaProcess) -> bool | None:
    return False if signal.selects(process) is False else None


def any_of(found: Iterable[bool | None]) -> bool | None:
    """Return whether one is true; None: unknown."""
    seen = {*found}
    return True if True in seen else None if None in seen else False


def _system_name(program: str) -> str:
    """Return the name of a program of the system; empty for another one."""
    folder, name = posixpath.split(program)
    return name if folder in _FOLDERS else ""


def _only_assigns(words: Sequence[str]) -> bool:
    is_declared = words[0] in _DECLARE
    of_loop = words[1:2] if words[0] == "for" and words[2:3] in ([], ["in"]) else []
    assigned = of_loop or [one for one in words[is_declared:] if is_declared or "=" in one]
    names = [one.partition("=")[0].removesuffix("+") for one in assigned]
    return (bool(of_loop) or len(names) == len(words[is_declared:])) and all(
        re.fullmatch(r"[A-Za-z_]\w*", name) and not _SPECIAL.fullmatch(name) for name in names
    )


def _put_in(text: str) -> str:
    """Return a text with the files whose content is a word, and with the literals that it assigns once. What single
    quotes give to another shell has the variables of its own environment."""
    before = ""
    while text != before:
        before = text
        text = _OF_FILE.sub(rf"{_BY_FILE}\2", text)
        quoted = [range(*found.span()) for found in _TOKEN.finditer(text) if found[0].startswith("'")]
        text = _VARIABLE.sub(partial(_value_of, _literals(text), quoted), text)
    return text


def _literals(text: str) -> dict[str, tuple[range, str]]:
    """Return the names that are assigned once, a literal → where a command is sure to have it, and the literal."""
    known: dict[str, tuple[range, str]] = {}
    for begin, end in _certain_commands(text):
        if (found := _VALUE.match(text, begin, end)) is None or _SPECIAL.fullmatch(name := found[1]):
            continue
        if len(re.findall(rf"(?<![\w-]){name}(?:\[[^]]*\])?[+:]?=|\bfor\s+{name}\b", text)) == 1:
            known[name] = (range(found.end(), end), found[3])
    return known


def _value_of(literals: Mapping[str, tuple[range, str]], quoted: Sequence[range], variable: re.Match[str]) -> str:
    where, value = literals.get(variable[1] or variable[2], (range(0), ""))
    is_here = not any(variable.start() in one for one in quoted)
    return value if variable.start() in where and is_here else variable[0]


def _certain_commands(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each command begins that runs whenever its block does, and where that block, or its part, ends.

    A command after `&`, `|` or `)` is left out, and so is each in a block that is not known to end.
    """
    while (found := _SUBSTITUTION.search(text)) is not None:
        text = text[: found.start()] + _UNKNOWN * len(found[0]) + text[found.end() :]
    blocks: list[tuple[str, list[int]]] = [("", [])]
    begin, is_certain, is_closed = 0, True, False
    for token in _TOKEN.finditer(f"{text}\n"):
        separator = token[1]
        if not separator:
            continue
        is_empty = not is_closed
        for word in re.finditer(r"\S+", text[begin : token.start()]):
            is_empty = False
            if (part := word[0]) in _BLOCKS:
                blocks.append((_BLOCKS[part], []))
            elif part in _PARTS or part in _BLOCKS.values():
                closer, commands = blocks.pop()
                if closer != _PARTS.get(part, part):
                    return
                yield from ((command, begin + word.start()) for command in commands)
                if part not in _PARTS:
                    break
                blocks.append((closer, []))
            elif part in _UNREAD_BLOCKS:
                return
            else:
                if is_certain:
                    blocks[-1][1].append(begin + word.start())
                break
            is_certain = True
        begin, is_closed = token.end(), separator == ")"
        if separator == "(":
            blocks.append((")", []))
            is_certain = True
        elif separator == ")":
            closer, commands = blocks.pop()
            if closer != ")":
                return
            yield from ((command, token.start()) for command in commands)
            is_certain = False
        else:
            is_certain = separator in ";\n" and (is_certain or not is_empty)
    if len(blocks) == 1:
        yield from ((command, len(text)) for command in blocks[0][1])


def _with_arguments(text: str, args: Sequence[str]) -> str:
    """Return the text of a script with the words of its call, if it has no others."""
    if re.search(r"\b(?:set|shift)\b|\(\s*\)|\bfunction\b", text):
        return text
    known = {
        str(at): one for at, one in enumerate(args, 1) if _MAIN.fullmatch(one) or re.fullmatch(rf"{_LITERAL}+", one)
    }
    return re.sub(r"\$(?:\{(\d)\}|(\d))", lambda found: known.get(found[1] or found[2], found[0]), text)


def _shown(text: str) -> str:
    return re.sub(rf"{_BY_FILE}({_LITERAL}+)", r"$(cat \1)", text.strip()).replace(_UNKNOWN, "$(…)")


def _by_script(args: Sequence[str], script: str | None, process: JavaProcess) -> bool | None:
    """kafka-server-stop.sh sends a signal to every process of kafka.Kafka, or to those with a node id or with exactly
    these roles in their files. It knows its options only with `=`. `script`: its text; None: unknown."""
    if not process.is_kafka:
        return False
    wanted = dict(_FILTER.findall(" ".join(args)))
    if not wanted or (script is not None and _WITH_FILTERS.search(script) is None):
        return True
    if script is None:
        return None
    if (node_id := wanted.get("node-id")) is not None:
        return process.node_id == node_id if node_id.isdigit() and process.node_id else None
    roles = wanted["process-role"]
    is_known = process.roles and re.fullmatch(r"[a-z, ]+", roles)
    return {*roles.split(",")} == {*process.roles.replace(" ", "").split(",")} if is_known else None


def _is_user(names: str, process: JavaProcess) -> bool:
    """Return whether one of these names or ids is known to be that of the user of a process."""
    known = {process.user, "" if process.user_id is None else str(process.user_id)} - {""}
    return not known.isdisjoint(names.split(","))


def _is_named(args: Sequence[str], process: JavaProcess) -> bool | None:
    """Return whether killall is known to reach a process; None: unknown."""
    left, names = [*args], list[str]()
    while left:
        word = left.pop(0)
        if word in ("-s", "--signal", "-u", "--user"):
            value = left.pop(0) if left else ""
            if word in ("-u", "--user") and not _is_user(value, process):
                return None
        elif word.startswith("-"):
            found = _SIGNAL.fullmatch(word)
            if word not in ("-q", "--quiet", "-v", "--verbose", "-w", "--wait", "-e", "--exact") and found is None:
                return None
            if found is not None and found[1] == "0":
                return None
        else:
            names.append(word)
    own = [posixpath.basename(word) for word in process.command[:1]]
    return True if any(name in own for name in names) else None


def _is_name(pattern: str, process: JavaProcess) -> bool | None:
    """Return whether a pattern matches a name that the kernel can have for a process."""
    names = {"java", *(posixpath.basename(word)[:15] for word in process.command[:1])}
    return any(re.search(pattern, name) for name in names) if _PLAIN.fullmatch(pattern) else None
