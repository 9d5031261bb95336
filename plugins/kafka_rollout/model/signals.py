"""Whom the commands of a stop send a signal, as far as their text proves it.

1. A program that can end another process reaches it, unless its words prove that it does not: an option that is not
   known proves nothing.
2. `kill` reaches a process unless each target is $MAINPID, a number of another process, or the content of a file.
3. A variable holds what all its assignments hold, and a parameter what all the calls pass. Without any, it can be the
   number of every process.
4. Service managers act with rights of their own, whatever the user of the command is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kafka_rollout.model.host_state import KafkaProcess
from kafka_rollout.model.starts import MAIN_CLASS

STOP_SCRIPT = "kafka-server-stop"
_AT = r"(?<![\w./$-])(?:[\w$./~][^\s;|&()`'\"]*/)?"
_ENDS = r"(?=[\s|;&)`'\"]|$)"
_MANAGERS = "systemctl|supervisorctl|initctl|loginctl|machinectl|docker|podman|nerdctl|service|invoke-rc.d|rc-service"
_MANAGER = re.compile(rf"{_AT}({_MANAGERS}){_ENDS}")
_SIGNALS = re.compile(
    rf"{_AT}(pkill|killall5?|killproc|start-stop-daemon|skill|fuser|kill){_ENDS}|({STOP_SCRIPT})[\w.-]*"
)
_SAYS = re.compile(r"\s*(?:/\S*/)?(?:echo|printf|logger|log_\w+)\s[^`]*")
_FINDERS = ("pgrep", "pidof", "pidofproc", "ps", "jps", "jcmd")
_FINDS = re.compile(rf"{_AT}(?:{'|'.join(_FINDERS)}|lsof|fuser|ss|netstat|find){_ENDS}")
_READERS = ("cat", "head", "tail", "sed", "awk", "cut", "tr")
_SAYERS = ("echo", "printf")
_PREFIXES = re.compile(r"(?:[({!]|if|then|elif|else|while|until|do|exec|command|env|nohup|sudo|local|export|\w+=.*)")
# Verbs of service managers that end nothing.
_HARMLESS = (
    *("is-active", "is-failed", "is-enabled", "show", "status", "cat", "list-units", "list-unit-files", "list"),
    *("reset-failed", "daemon-reload", "start", "enable", "ps", "logs", "inspect", "pid", "info", "version", "wait"),
)
_VERB_FIRST_NAME = ("service", "invoke-rc.d", "rc-service")
_REFERENCE = re.compile(r"\$\{?(\w+|[@*$!?#-])")
_REFERENCE_ALONE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_POSITIONAL = re.compile(r"\d+|[@*]")
_OWN = frozenset(("MAINPID", "$", "!", "?", "#", "-"))
_FILE_PATTERN = re.compile(r"[*?\[(`]|^/proc\b")
_OF_ONE_FILE = re.compile(r"\$\((?:dirname|basename|hostname|readlink) [^()*?\[]*\)")
_FUNCTION = re.compile(r"(?:^|[;\n])\s*(?:function\s+)?(\w+)\s*\(\s*\)\s*\{?")
_SHELL_CODE = re.compile(
    r"(\b(?:(?:ba|da|k|z)?sh|su|runuser|sudo)\b[^|;&\n'\"]*?\s-\w*c\s+)(?:'([^'\n]*)'|\"((?:\\.|[^\"\\\n])*)\")"
)
_FILTER = re.compile(r"--(node-id|process-role)=([^ '\"]*)")
_ROLES = re.compile(r"[a-z, ]+")
# A pattern whose text shows whether it is in a command line.
_PLAIN = re.compile(r"(?:[\w/=, -]|\\?\.|\[[\w/]\])+")
# Options without an argument, then options with one; those that are in neither are not known.
_OF_PGREP = ("cfilanowxehLHA", "dPFgGOqstuUr")
_LONG_OF_PGREP = (
    "full ignore-case list-name list-full count newest oldest exact echo require-handler logpidfile ignore-ancestors",
    "delimiter signal pidfile pgroup group older parent queue session terminal euid uid runstates ns nslist cgroup env",
)
_OF_KILLALL = ("eIilqvVwcxnmz", "oysuZSdt")
_LONG_OF_KILLALL = (
    "exact ignore-case interactive list quiet verbose wait single-shot",
    "older-than younger-than signal user ns context separator",
)
_OF_DAEMON = ("KoqvCbmTSt", "pxnusRadcgNIPkrO")
_LONG_OF_DAEMON = (
    "stop start status test oknodo quiet verbose background make-pidfile remove-pidfile no-close",
    "pidfile pid ppid exec name user signal retry startas chdir chroot chuid group nicelevel procsched iosched umask",
)
_OF_KILLPROC = ("vqwGgLN", "pdbtin")
_OF_GREP = ("EFGivwcqnohsaxP", "em")


@dataclass(frozen=True, slots=True)
class _Call:
    """The words of a program."""

    options: tuple[tuple[str, str], ...]
    """Each with its argument, or with an empty text."""
    names: tuple[str, ...]
    """The other words."""
    is_known: bool
    """Each option is known."""

    def values(self, *options: str) -> list[str]:
        return [value for option, value in self.options if option in options]

    def has(self, *options: str) -> bool:
        return any(option in options for option, _ in self.options)


@dataclass(frozen=True)
class StopText:
    """The lines of one command or script of a stop."""

    lines: Sequence[str]
    unit: str
    """Of the stop."""
    configuration: str
    """The file of its node."""
    filters: bool
    """kafka-server-stop.sh has filters."""
    arguments: tuple[str, ...] = ()
    """The words with which the script is called."""

    def find_signal(self, process: KafkaProcess, *, can_signal: bool) -> str | None:
        """Return the command that reaches a process, or of which this is unknown. `can_signal`: the user of the stop
        has the right to send a signal to it."""
        return next((part for part in self.parts if self._reaches(part, process, can_signal=can_signal)), None)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        text = re.sub(r"\|\s*\n", "| ", "\n".join(self.lines))
        text = _SHELL_CODE.sub(lambda match: f"{match[1]};{match[2] or match[3] or ''};", text)
        return tuple(_split(text))

    @cached_property
    def functions(self) -> dict[str, tuple[str, ...]]:
        """Each function with the commands of its body."""
        text = "\n".join(self.lines)
        found = {}
        for match in _FUNCTION.finditer(text):
            body = re.split(r"(?:^|[\n;])\s*\}", text[match.end() :], maxsplit=1)[0]
            found[match[1]] = tuple(_split(body))
        return found

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """Each variable with the texts that its assignments give it. A text that begins with `|` is a command."""
        found: dict[str, list[str]] = {}
        for part in self.parts:
            stages = _split(part, "|")
            for number, stage in enumerate(stages):
                for word in _words(stage):
                    if match := re.fullmatch(r"(\w+)\+?=(.*)", word, re.DOTALL):
                        found.setdefault(match[1], []).append(match[2])
                if match := re.search(r"\bfor\s+(\w+)\s+in\s(.*)", stage, re.DOTALL):
                    found.setdefault(match[1], []).extend(_words(match[2]))
                if match := re.search(r"\bread\s+(?:-r\s+)?(\w+)", stage):
                    source = "|".join(stages[:number]) or stage[match.end() :]
                    found.setdefault(match[1], []).append(f"|{source}")
        return found

    @cached_property
    def passed(self) -> tuple[str, ...]:
        """The words that the calls of its functions and the call of the script pass."""
        found = [*self.arguments]
        for part in self.parts:
            if match := re.search(r"\bset\s+--\s(.*)", part, re.DOTALL):
                found += _words(match[1])
        for name in self.functions:
            for part in self.parts:
                for match in re.finditer(rf"(?<![\w./$-]){name}\s(?!\s*\()(.*)", part, re.DOTALL):
                    found += _words(match[1])
        return tuple(found)

    def _reaches(self, part: str, process: KafkaProcess, *, can_signal: bool) -> bool:
        stages = [_REFERENCE_ALONE.sub(self._program, stage) for stage in _split(part, "|")]
        for number, stage in enumerate(stages):
            if _SAYS.fullmatch(stage) and "$(" not in stage and number == len(stages) - 1:
                continue
            for match in _MANAGER.finditer(stage):
                if self._is_managed(match[1], _words(stage[match.end() :])):
                    return True
            for match in _SIGNALS.finditer(stage) if can_signal else ():
                before = stage[: match.start()]
                if _MANAGER.search(before) is None:
                    source = "|".join(stages[:number]) if re.search(r"\bxargs\b", before) else None
                    if self._signals(match[1] or match[2], stage[match.end() :], process, source):
                        return True
        return False

    def _put_in(self, word: str) -> str:
        """Return a word with the variables that have one value, a text."""

        def value(reference: re.Match[str]) -> str:
            texts = [one.strip("'\"") for one in self.values.get(reference[1] or reference[2], ())]
            return texts[0] if len(texts) == 1 and re.fullmatch(r"[\w./@-]+", texts[0]) else reference[0]

        return _REFERENCE_ALONE.sub(value, word)

    def _program(self, reference: re.Match[str]) -> str:
        """Return the program that a variable has, else the reference itself."""
        programs = (one.strip("'\"") for one in self.values.get(reference[1] or reference[2], ()))
        return next((one for one in programs if _SIGNALS.match(one) or _MANAGER.match(one)), reference[0])

    def _is_managed(self, program: str, words: Sequence[str]) -> bool:
        """Return whether a service manager can end something else than the unit of the stop."""
        call = _parse(words, "", "HMtpPsnoS", ("", "property type signal kill-who kill-whom host machine state"))
        names = [*call.names]
        if program in _VERB_FIRST_NAME:
            return len(names) > 1 and names[1] not in _HARMLESS and not self._is_own_unit(names[0])
        if not names or names[0] in _HARMLESS:
            return False
        return program != "systemctl" or len(names) == 1 or not all(map(self._is_own_unit, names[1:]))

    def _is_own_unit(self, name: str) -> bool:
        return self._put_in(name) in (self.unit, self.unit.removesuffix(".service"))

    def _signals(self, program: str, rest: str, process: KafkaProcess, source: str | None) -> bool:
        words = _words(rest)
        if program == STOP_SCRIPT:
            return self._by_script(rest, process)
        if program == "kill":
            return self._kills(words, process, source)
        if program == "fuser":
            return any(re.fullmatch(r"-[a-z]*k[a-zA-Z]*|--kill", word) for word in words) and not _is_test(
                program, words
            )
        if _is_test(program, words):
            return False
        if program in ("skill", "killall5"):
            return True
        return self._selects(program, words, process)

    def _kills(self, words: Sequence[str], process: KafkaProcess, source: str | None) -> bool:
        targets = [*words]
        if targets and targets[0] in ("-l", "-L", "--list", "--table", "-p", "--pid"):
            return False
        signal = ""
        while targets and targets[0].startswith("-") and targets[0] != "--":
            option = targets.pop(0)
            if option in ("-a", "--all"):
                continue
            if option in ("-s", "-n", "-q", "--signal", "--queue"):
                signal = targets.pop(0) if targets else ""
            elif option.startswith("--signal="):
                signal = option.partition("=")[2]
            elif option == "--timeout":
                del targets[:2]
            elif signal:  # a process group after the signal
                targets.insert(0, option)
                break
            else:
                signal = option[1:]
        if signal in ("0", "EXIT"):
            return False
        if targets[:1] == ["--"]:
            del targets[0]
        if source is not None:
            rest = [one for one in targets if one not in ("{}", "%")]
            return self._prints(source, process) or any(self._holds(one, process) for one in rest)
        if not targets:
            return signal == "1"  # `kill -1`
        return any(self._holds(one, process) for one in targets)

    def _by_script(self, text: str, process: KafkaProcess) -> bool:
        """kafka-server-stop.sh sends SIGTERM to every process of kafka.Kafka, or to those with a node id or with
        exactly these roles in their files. It knows its options only with `=` (bin/kafka-server-stop.sh)."""
        wanted = dict(_FILTER.findall(text)) if self.filters else {}
        if (node_id := wanted.get("node-id")) is not None:
            return not node_id.isdigit() or process.node_id in ("", node_id)
        if (roles := wanted.get("process-role")) is not None:
            is_plain = _ROLES.fullmatch(roles) is not None
            own = {*process.roles.replace(" ", "").split(",")}
            return not is_plain or not process.roles or {*roles.split(",")} == own
        return True

    def _holds(self, word: str, process: KafkaProcess, seen: set[str] | None = None) -> bool:
        """Return whether a word can be the number of the process, or with other numbers. `seen`: variables and
        functions that are already judged."""
        seen = set() if seen is None else seen
        if word.startswith("|"):
            return self._prints(word[1:], process, seen)
        literal = ""
        for atom in _atoms(word):
            if atom.startswith(("$(", "`")) and len(atom) > 1:
                if self._prints(_inner(atom), process, seen):
                    return True
            else:
                literal += atom
        if "$(" in literal or "`" in literal:
            return True
        names = ("@" if _POSITIONAL.fullmatch(name) else name for name in _REFERENCE.findall(literal))
        for name in names:
            if name in seen or (name in _OWN and name not in self.values):
                continue
            seen.add(name)
            texts = self.passed if name == "@" else self.values.get(name, ())
            # Of `PID=${PID:-}`, the environment has the value.
            if all(name in _REFERENCE.findall(text) for text in texts) or any(
                self._holds(one, process, seen) for text in texts for one in _words(text, name)
            ):
                return True
        left = re.sub(r"\$\{?(?:\w+|[@*$!?#-])", "", literal).strip()
        if left.isdigit():
            return process.pid in (0, int(left)) and left != "0"
        if re.fullmatch(r"-\d+", left):
            return True  # -1: every process; else a process group
        return re.search(r"\w", left) is not None and (_PLAIN.fullmatch(left) is None or left in _names(process))

    def _prints(self, text: str, process: KafkaProcess, seen: set[str] | None = None) -> bool:
        """Return whether the output of a command can have the number of the process."""
        seen = set() if seen is None else seen
        text = text.strip()
        if text.startswith("<") and not text.startswith("<("):
            return self._is_many(text[1:].strip())
        commands = _split(text)
        if len(commands) != 1:
            return True
        first, *rest = _split(text, "|")
        if any(_FINDS.search(stage) for stage in rest):
            return True
        words = _words(first)
        while words and _PREFIXES.fullmatch(words[0]):
            del words[0]
        if not words:
            return True
        program, words = posixpath.basename(words[0]), words[1:]
        if program in _SAYERS:
            return any(self._holds(word, process, seen) for word in words)
        if program in _READERS:
            return self._reads_many(program, words, first)
        if program in ("pgrep", "pidof", "pidofproc"):
            return self._selects(program, words, process)
        if program in _FINDERS:
            return self._lists(program, words, rest, process)
        if program == "systemctl":
            call = _parse(words, "", "p", ("value", "property"))
            shows_pid = call.values("p", "property") == ["MainPID"]
            return not (shows_pid and call.names[:1] == ("show",) and all(map(self._is_own_unit, call.names[1:])))
        if f"{program}()" in seen:
            return False
        seen.add(f"{program}()")
        body = [one for one in self.functions.get(program, ()) if _prints_something(one)]
        return not body or any(self._prints(one, process, seen) for one in body)

    def _reads_many(self, program: str, words: Sequence[str], text: str) -> bool:
        """Return whether a command that prints files reads others than one that the text names."""
        files = [word for word in words if not word.startswith("-")]
        if program != "cat":
            files = files[-1:] if files and re.search(r"[/$]", files[-1]) and " " not in files[-1] else []
        if not files and (match := re.search(r"<\s*([^\s<(]+)", text)):
            files = [match[1]]
        return len(files) != 1 or self._is_many(files[0])

    def _is_many(self, file: str) -> bool:
        texts = [file, *(text for name in _REFERENCE.findall(file) for text in self.values.get(name, ()))]
        return any(_FILE_PATTERN.search(_OF_ONE_FILE.sub("", text).strip("'\"")) for text in texts)

    def _selects(self, program: str, words: Sequence[str], process: KafkaProcess) -> bool:
        """Return whether a command that finds processes finds this one, or if that is unknown."""
        if program in ("pkill", "pgrep"):
            call = _parse(words, *_OF_PGREP, _LONG_OF_PGREP)
            if not call.is_known:
                return True
            files, parents = call.values("F", "pidfile"), call.values("P", "parent")
            if any(not self._is_many(one) for one in files) or any(
                self._is_own_variable(one, process) for one in parents
            ):
                return False
            is_full = call.has("f", "full")
            matches = [
                self._can_match(one, process) if is_full else any(_can_be(one, name) for name in _names(process))
                for one in call.names
            ]
            return not matches or any(matches)
        if program in ("killall", "pidof"):
            call = _parse(words, *_OF_KILLALL, _LONG_OF_KILLALL)
            return not call.is_known or not call.names or _is_named(call.names, process)
        if program in ("killproc", "pidofproc"):
            call = _parse(words, *_OF_KILLPROC, ("", ""))
            if not call.is_known:
                return True
            if any(not self._is_many(one) for one in call.values("p")):
                return False
            return _is_named([*call.names[:1], *call.values("b")], process)
        call = _parse(words, *_OF_DAEMON, _LONG_OF_DAEMON)
        if not call.is_known:
            return True
        if not call.has("K", "stop") or call.has("t", "test"):
            return False
        proofs = (
            any(not self._is_many(one) for one in call.values("p", "pidfile")),
            any(not self._holds(one, process) for one in call.values("pid")),
            any(self._is_own_variable(one, process) for one in call.values("P", "ppid")),
            any(not _is_named([one], process) for one in call.values("x", "exec", "n", "name")),
        )
        return not any(proofs)

    def _is_own_variable(self, word: str, process: KafkaProcess) -> bool:
        return "$" in word and not self._holds(word, process)

    def _lists(self, program: str, words: Sequence[str], rest: Sequence[str], process: KafkaProcess) -> bool:
        """Return whether `ps`, `jps` or `jcmd` and the filters after it let the line of a process through."""
        is_cut = program != "ps" or any(re.match(r"-?[a-zA-Z]*o|--format", word) for word in words)
        if program == "ps":
            pids = _pids_of_ps(words)
            if pids and not any(self._holds(one, process) for one in pids):
                return False
        return all(self._passes(stage, process, is_cut=is_cut) for stage in rest)

    def _passes(self, stage: str, process: KafkaProcess, *, is_cut: bool) -> bool:
        """Return whether a filter lets the line of a process through, or if that is unknown."""
        words = _words(stage)
        program, words = posixpath.basename(words[0]) if words else "", words[1:]
        if program.endswith("awk"):
            pattern = re.fullmatch(r"\s*/((?:\\.|[^/\\])+)/\s*(?:\{.*\})?", words[0]) if words else None
            return pattern is None or self._can_match(pattern[1], process)
        if not program.endswith("grep") or program == "pgrep":
            return True
        call = _parse(words, *_OF_GREP, ("", ""), numbers=False)
        patterns = call.values("e") or [*call.names[:1]]
        if not call.is_known or len(patterns) != 1:
            return True
        if call.has("v"):
            shown = " ".join(process.command)
            is_shown = process.pid > 0 and not is_cut and _PLAIN.fullmatch(patterns[0]) is not None
            return not (is_shown and re.search(patterns[0], shown))
        return self._can_match(patterns[0], process, ignores_case=call.has("i"))

    def _can_match(self, pattern: str, process: KafkaProcess, *, ignores_case: bool = False) -> bool:
        """Return whether a pattern can match the command line of a process."""
        pattern = self._put_in(pattern)
        if not (process.pid and process.command):  # nobody has seen it: it differs in the file alone
            own = re.sub(r"\\|\[([\w/])\]", r"\1", pattern)
            if not self.configuration or self.configuration not in own or process.configuration == self.configuration:
                return True
        command = process.command or ("java", MAIN_CLASS)
        shown = f"{process.user} {process.pid} {process.unit} {' '.join(command)} Kafka"
        return _can_be(pattern, shown, ignores_case=ignores_case)


def _prints_something(part: str) -> bool:
    words = _words(part)
    while words and _PREFIXES.fullmatch(words[0]):
        del words[0]
    return bool(words) and posixpath.basename(words[0]) in (*_READERS, *_FINDERS, *_SAYERS, "systemctl")


def _names(process: KafkaProcess) -> set[str]:
    """Return the names that the kernel can have for a process."""
    return {"java", *(posixpath.basename(word)[:15] for word in process.command[:1])}


def _is_named(names: Sequence[str], process: KafkaProcess) -> bool:
    return any(
        re.fullmatch(r"[\w./-]+", one) is None or posixpath.basename(one)[:15] in _names(process) for one in names
    )


def _can_be(pattern: str, shown: str, *, ignores_case: bool = False) -> bool:
    if _PLAIN.fullmatch(pattern) is None:
        return True
    return re.search(pattern, shown, re.IGNORECASE if ignores_case else 0) is not None


def _is_test(program: str, words: Sequence[str]) -> bool:
    """Return whether the signal is 0, which only asks for the process."""
    has_short = program in ("killall", "start-stop-daemon")  # -s of pkill is a session
    pairs = zip(("", *words), (*words, ""), strict=True)
    return any(
        word in ("-0", "--signal=0") or (word == "0" and (before == "--signal" or (has_short and before == "-s")))
        for before, word in pairs
    )


def _pids_of_ps(words: Sequence[str]) -> list[str]:
    """Return the numbers with which `ps` selects processes; none if it selects others too."""
    found: list[str] = []
    left = [*words]
    while left:
        word = left.pop(0)
        if match := re.fullmatch(r"-[fFlwh]*[pq](.*)|--(?:pid|quick-pid)(?:=(.*))?", word):
            value = match[1] or match[2]
            found += [value] if value else left[:1]
            if not value:
                del left[:1]
        elif re.fullmatch(r"-?o|--format", word):
            del left[:1]
        elif re.fullmatch(r"\d+|\$.*", word):
            found.append(word)
        elif re.fullmatch(r"-[fFlwh]+|[hwlu]+|-o.+|--no-head.*|--format=.*|--sort.*", word) is None:
            return []
    return found


def _parse(words: Sequence[str], plain: str, valued: str, long: tuple[str, str], *, numbers: bool = True) -> _Call:
    """Return the options with their arguments. `plain`, `valued`: the short ones without and with an argument. `long`:
    the same of the long ones. `numbers`: `-TERM` and `-15` are signals."""
    options: list[tuple[str, str]] = []
    names: list[str] = []
    is_known = True
    left = [*words]
    long_plain, long_valued = (one.split() for one in long)
    while left:
        word = left.pop(0)
        if word == "--":
            names += left
            break
        if not word.startswith("-") or word == "-":
            names.append(word)
        elif word.startswith("--"):
            name, is_set, value = word[2:].partition("=")
            if name in long_valued:
                options.append((name, value if is_set else "".join(left[:1])))
                del left[: 0 if is_set else 1]
            else:
                options.append((name, value))
                is_known &= name in long_plain
        elif numbers and re.fullmatch(r"-(?:\d+|(?:SIG)?[A-Z]{3,}\d*|\$\{?SIG\w*\}?)", word):
            continue
        else:
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                if letter in valued:
                    options.append((letter, letters or "".join(left[:1])))
                    del left[: 0 if letters else 1]
                    break
                options.append((letter, ""))
                is_known &= letter in plain
    return _Call(tuple(options), tuple(names), is_known)


def _atoms(text: str) -> Iterator[str]:
    """Yield characters, quoted texts and substitutions."""
    start = 0
    while start < len(text):
        end = _end_of_atom(text, start)
        yield text[start:end]
        start = end


def _end_of_atom(text: str, start: int) -> int:
    """An opening mark without its end is a character of its own."""
    first = text[start]
    if first == "\\":
        return min(start + 2, len(text))
    if text.startswith(("$(", "<("), start):
        depth = 0
        for at in range(start + 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                return at + 1
        return start + 1
    if first in "'`":
        at = text.find(first, start + 1)
        return at + 1 if at > 0 and "\n" not in text[start:at] else start + 1
    if first == '"':
        at = start + 1
        while at < len(text) and text[at] != "\n":
            if text[at] == '"':
                return at + 1
            at = _end_of_atom(text, at) if text[at] in "\\$`" else at + 1
    return start + 1


def _inner(atom: str) -> str:
    """Return the command of a substitution."""
    return atom[2:-1] if atom.startswith("$(") else atom[1:-1]


def _split(text: str, mark: str = "") -> list[str]:
    """Return the commands of a text, or with `|` the stages of a pipeline."""
    found = [""]
    atoms = [*_atoms(text)]
    for number, atom in enumerate(atoms):
        before, after = "".join(atoms[number - 1 : number]), "".join(atoms[number + 1 : number + 2])
        is_redirection = atom == "&" and (before in ("<", ">") or after == ">")
        is_or = atom == "|" and "|" in (before, after)
        is_end = atom in (";", "\n") or is_or or (atom == "&" and not is_redirection)
        if (atom == mark) if mark else is_end:
            found.append("")
        else:
            found[-1] += atom
    return [one.strip() for one in found if one.strip()]


def _words(text: str, of: str = "") -> list[str]:
    """Return the words of a command without redirections, up to the end of its part of a pipeline. `of`: the variable
    that has the text; it is then one word."""
    if of and text.startswith("|"):
        return [text]
    found: list[str] = []
    word: str | None = None
    atoms = [*_atoms(text)]
    at = 0
    while at < len(atoms):
        atom = atoms[at]
        at += 1
        if atom in ("|", ";", "&", ")", "\n", "`"):
            break
        if atom in ("<", ">"):
            word = None if word is not None and word.isdigit() else word
            while at < len(atoms) and (atoms[at] in "<>&" or atoms[at].isspace()):
                at += 1
            while at < len(atoms) and not atoms[at].isspace() and atoms[at] not in "|;)":
                at += 1
        elif atom.isspace():
            found += [] if word is None else [word]
            word = None
        elif atom not in ("'", '"') and not (atom == "(" and word is None):
            word = (word or "") + _without_quotes(atom)
    return [*found, *([] if word is None else [word])]


def _without_quotes(atom: str) -> str:
    if atom.startswith("\\"):
        return atom[1:] if atom[1:] in ("\n", "$", '"', "'", "`", " ") else atom
    if atom.startswith("`"):
        return f"$({_inner(atom)})"
    return atom[1:-1] if atom[:1] in ("'", '"') else atom
