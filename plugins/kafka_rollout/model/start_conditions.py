"""Which commands of a start can end it in another way than they ended the last one, and which remove data.

A command of the site asks something: a token, a server, a mount, a repository. Its last answer is as old as the last
start. A command counts unless it cannot fail, or all that it needs was looked at on the host: what it changes or copies
is there, and the users whom it names exist.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from kafka_rollout.model.host_state import PlaceState

_FOLDER, _THERE = frozenset({PlaceState.FOLDER}), frozenset({PlaceState.FOLDER, PlaceState.FILE})
_MISSING = frozenset({PlaceState.MISSING})
_CANNOT_FAIL = frozenset(
    {
        *("true", ":", "echo", "printf", "export", "set", "unset", "shift", "trap", "local", "readonly", "declare"),
        *("umask", "typeset", "break", "continue"),
    }
)
_ANSWERS = frozenset({"dirname", "basename", "pwd", "hostname", "uname", "nproc", "date", "id", "cd", "echo", "printf"})
_CHANGES = {"chown": 1, "chgrp": 1, "chmod": 1, "restorecon": 0, "setfacl": 0, "chcon": 1}
"""Programs that change files which are there → how many words come before them."""
_WITH_VALUE = {
    "install": ("-o", "-g", "-m", "-t", "--owner", "--group", "--mode"),
    "mkdir": ("-m", "--mode"),
    "setfacl": ("-m", "-x", "--modify", "--remove"),
    "touch": ("-d", "-t", "--date"),
    "sed": ("-e", "--expression"),
}
_MAKES = frozenset({"cp", "install", "cat", "sed", "envsubst", "tee", "echo", "printf"})
"""Programs that write a file from the files that they name, and from the environment."""
_LONGEST_SLEEP_S = 30.0
_SHELL = re.compile(r"\S*/(?:ba|da)?sh\s+(?:-\w+\s+)*?-\w*c\w*\s+(.*)", re.DOTALL)
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;\n|]|(?<![>&\d])&(?![&>])")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|\\.")
_COMPUTES = re.compile(r"\$\(((?:[^()]|\([^()]*\))*)\)|`([^`]*)`")
_ASSIGNMENT = re.compile(
    r"(?:[A-Za-z_]\w*\+?=(?:\"[^\"]*\"|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|[^\s\"'])*\s*)+"
)
_REDIRECTION = re.compile(r"\d*(?:>&|<&)\d+|&?\d*(>>|>\||>|<)\s*(\"[^\"]*\"|'[^']*'|[^\s\"'&<>]+)")
_KEYWORDS = re.compile(r"(?:(?:then|else|do|\{|!|\(|(?:function\s+)?[\w-]+\s*\(\)(?:\s*\{)?)\s+)+")
_ASKS = re.compile(r"(?:el)?if\s+(?:!\s+)?(?!\[|test\b)|(?:el)?if\s.*(?:\[|test)\s+(?:!\s+)?-[defrsx]\s")
_NOTHING = re.compile(
    r"(?:if|elif|for|case|function)\b.*|fi|done|esac|then|else|do|[{}()]+|[\w-]+\s*\(\)\s*\{?", re.DOTALL
)
_WAITS = re.compile(r"(?:while|until)\b(?!\s+(?:\[|test\b|read\b|getopts\b))")
_ENDS = re.compile(r"(?:exit|return)\b(?!\s+0\b)")
_UNKNOWN_PATH = re.compile(r"[$`%~*?\[{]")
_HARMLESS_NAMES = frozenset({"lost+found"})
_IDENTITY = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a command needs in order not to fail."""

    places: Mapping[str, frozenset[PlaceState]] = field(default_factory=dict)
    """Path → what can be there."""
    owners: frozenset[str] = frozenset()
    """Users and groups, as `passwd NAME` and `group NAME`."""
    makes: tuple[str, ...] = ()
    """Paths that are there after it."""
    sources: tuple[str, ...] = ()
    """Files whose content it copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """A command that a start runs before, or beside, Kafka."""

    shown: str
    text: str
    """One command of a shell, with known values for its variables."""
    can_end: bool = True
    """The start ends if it fails."""

    @property
    def needs(self) -> Needs | None:
        """None: it is unknown on what its result depends."""
        return _needs_of(self.text)


def of_unit(commands: Iterable[tuple[str, bool]]) -> Iterator[StartCommand]:
    """Yield the commands of ExecCondition=, ExecStartPre= and ExecStartPost=, each with whether its errors are ignored.
    Those of Kafka have a check of their own."""
    for command, is_ignored in commands:
        shell = _SHELL.match(command)
        if shell is None and _program(command).startswith("kafka-"):
            continue
        parts = list(_parts([shell[1].strip("'\"")], starts=None)) if shell else [(command, True, False)]
        for text, can_end, _ in parts:
            yield StartCommand(shown=command, text=text, can_end=can_end and not is_ignored)


def of_start(command: str, starts: re.Pattern[str]) -> Iterator[StartCommand]:
    """Yield the commands that ExecStart= runs in a shell before the program that `starts` finds."""
    if (shell := _SHELL.match(command)) is not None:
        is_strict = re.match(r"\S+\s+(?:-\w+\s+)*-\w*e\w*\s", command) is not None
        yield from _of_script("", [shell[1].strip("'\"")], [shell[1].strip("'\"")], starts, is_strict=is_strict)


def of_script(
    path: str, lines: Sequence[str], resolved: Sequence[str], starts: re.Pattern[str], *, is_strict: bool
) -> Iterator[StartCommand]:
    """Yield the commands of a script before the program that `starts` finds. `resolved`: the same lines with values.
    `is_strict`: the shell ends with the first command that fails (`set -e`)."""
    yield from _of_script(f"{path}: ", lines, resolved, starts, is_strict=is_strict)


def is_strict(interpreter: str, lines: Iterable[str]) -> bool:
    """Return whether a script ends with its first command that fails."""
    of_first = re.search(r"sh(?:\s+-\w+)*\s+-\w*e", interpreter) is not None
    return of_first or any(re.match(r"set\s+(?:\S+\s+)*(?:-\w*e\w*|-\w*o\s+errexit)\b", line) for line in lines)


def _of_script(
    prefix: str, lines: Sequence[str], resolved: Sequence[str], starts: re.Pattern[str], *, is_strict: bool
) -> Iterator[StartCommand]:
    functions = frozenset(match[1] for line in lines if (match := re.match(r"(?:function\s+)?([\w-]+)\s*\(\)", line)))
    about = ""
    for line, text in _joined(lines, resolved):
        parts = list(_parts([text], starts=starts))
        for part, ends_list, is_before in parts:
            if re.match(r"(?:if|elif|case)\b", part):
                about = line
            if is_start(part, starts):
                if _ASKS.match(about):
                    yield StartCommand(shown=prefix + about, text="exit 1")
                return
            if _WAITS.match(part):
                yield StartCommand(shown=prefix + line, text=part)
            elif _ENDS.match(_bare(part)):
                yield StartCommand(shown=prefix + (about or line), text=part, can_end="$#" not in (about or line))
            elif _program(_bare(part)) not in functions:
                yield StartCommand(shown=prefix + line, text=part, can_end=is_before or (is_strict and ends_list))
        if re.search(r"\b(?:fi|esac)\b", text):
            about = ""


def is_start(part: str, starts: re.Pattern[str]) -> bool:
    """Return whether a command is that of the program itself."""
    return starts.search(part) is not None or re.match(r"exec\s+[^\s\d<>&]", _bare(part)) is not None


def _joined(lines: Sequence[str], resolved: Sequence[str]) -> Iterator[tuple[str, str]]:
    begun = text = ""
    for line, other in zip(lines, resolved, strict=True):
        begun, text = f"{begun} {line}".strip(), f"{text} {other}".strip()
        if not re.search(r"(?:&&|\|\||\|)\s*\Z", text):
            yield begun, text
            begun = text = ""
    if begun:
        yield begun, text


def _parts(lines: Iterable[str], *, starts: re.Pattern[str] | None) -> Iterator[tuple[str, bool, bool]]:
    """Yield each command, whether its failure is that of its list, and whether the start follows it by `&&` or is left
    out by `|| exit`. Without `starts`, each failure counts."""
    for line in lines:
        for and_or in _lists(line):
            words = [part for part, _ in and_or]
            last_or = max((number for number, (_, before) in enumerate(and_or) if before == "||"), default=None)
            is_saved = last_or is not None and last_or == len(and_or) - 1 and _cannot_fail(words[-1])
            has_start = starts is not None and any(is_start(word, starts) for word in words)
            leaves = last_or is not None and any(_ENDS.match(_bare(word)) for word in words[last_or:])
            for number, part in enumerate(words):
                is_last = starts is None or number == len(words) - 1 or and_or[number + 1][1] != "&&"
                counts = not is_saved
                yield part, counts and is_last, counts and (has_start or leaves)


def _lists(line: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the lists of a line (`a && b || c`), each command with the operator before it."""
    hidden = _QUOTED.sub(lambda match: "\0" * len(match[0]), line)
    found: list[tuple[str, str]] = []
    begun, before = 0, ""
    for match in (*_SEPARATOR.finditer(hidden), None):
        part = line[begun : match.start() if match else len(line)].strip()
        if part:
            found.append((part, before))
        if match is None or match[0] not in ("&&", "||", "|", "|&"):
            if found:
                yield found
            found, before = [], ""
        else:
            before = match[0]
        begun = match.end() if match else begun


def _cannot_fail(part: str) -> bool:
    needs = _needs_of(part)
    return needs is not None and not needs.places and not needs.owners


def _bare(part: str) -> str:
    return _KEYWORDS.sub("", part.strip(), count=1) if _KEYWORDS.match(part.strip()) else part.strip()


def _program(command: str) -> str:
    words = command.split(maxsplit=1)
    return words[0].rpartition("/")[2] if words else ""


def _is_answered(text: str) -> bool:
    """Return whether what a text computes comes from programs that only know their host."""
    inner = (match[1] or match[2] or "" for match in _COMPUTES.finditer(text))
    parts = (part for one in inner for found in _lists(one) for part, _ in found)
    return all(_program(part) in _ANSWERS and _is_answered(part) for part in parts)


def _needs_of(text: str) -> Needs | None:
    part = _bare(text)
    if not part or _NOTHING.fullmatch(part):
        return Needs()
    if _WAITS.match(part) or _ENDS.match(part):
        return None
    if re.match(r"(?:while|until|read|exit|return)\b", part):
        return Needs()
    places: dict[str, frozenset[PlaceState]] = {}
    hidden = _QUOTED.sub(lambda match: match[0] if match[0][0] in "\"'" else "\0" * len(match[0]), part)
    for match in _REDIRECTION.finditer(hidden):
        path = part[match.start(2) : match.end(2)].strip("\"'") if match[2] else ""
        if not path or path.startswith("/dev/"):
            continue
        if not path.startswith("/") or _UNKNOWN_PATH.search(path):
            return None
        places |= {path: _THERE} if match[1] == "<" else {posixpath.dirname(path): _FOLDER}
    plain = part
    for match in reversed([*_REDIRECTION.finditer(hidden)]):
        plain = plain[: match.start()] + plain[match.end() :]
    if _ASSIGNMENT.fullmatch(plain.strip()):
        return Needs(places=places) if _is_answered(plain) else None
    program = _program(plain)
    if program in _CANNOT_FAIL or plain.strip() in ("", "exec"):
        return Needs(places=places)
    try:
        words = shlex.split(plain)
    except ValueError:
        return None
    found = _needs_of_words(program, words[1:])
    if found is None or any(_UNKNOWN_PATH.search(path) or not path.startswith("/") for path in found.places):
        return None
    return replace(found, places={**found.places, **places})


def _split(program: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the other words."""
    options: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE.get(program, ()):
            options[word] = next(rest, "")
        elif word == "--":
            others += rest
        elif word.startswith("-") and len(word) > 1:
            options[word.partition("=")[0]] = word.partition("=")[2]
        else:
            others.append(word)
    return options, others


def _has(options: Collection[str], letter: str, *long: str) -> bool:
    return any(one in long or (re.fullmatch(r"-[A-Za-z]+", one) and letter in one) for one in options)


def _needs_of_words(program: str, words: Sequence[str]) -> Needs | None:
    options, others = _split(program, words)
    match program:
        case "sleep":
            total = [re.fullmatch(r"([\d.]+)s?", word) for word in others]
            is_short = all(total) and sum(float(one[1]) for one in total if one) <= _LONGEST_SLEEP_S
            return Needs() if is_short else None
        case "mkdir" if _has(options, "p", "--parents"):
            return Needs(places=dict.fromkeys(others, _FOLDER | _MISSING), makes=tuple(others))
        case "mkdir":
            above = dict.fromkeys(map(posixpath.dirname, others), _FOLDER)
            return Needs(places={**above, **dict.fromkeys(others, _MISSING)}, makes=tuple(others))
        case "install" if _has(options, "d", "--directory"):
            owners = _owners_of(options)
            return Needs(places=dict.fromkeys(others, _FOLDER | _MISSING), owners=owners, makes=tuple(others))
        case "install" | "cp" | "mv" | "ln" if len(others) > 1 and "-t" not in options:
            return _needs_of_copy(program, options, others)
        case "touch":
            return Needs(places=dict.fromkeys(map(posixpath.dirname, others), _FOLDER), makes=tuple(others))
        case "rm" | "rmdir":
            is_forced = program == "rm" and _has(options, "f", "--force")
            if is_forced:
                is_deep = _has(options, "r", "--recursive") or _has(options, "R")
                return None if is_deep and any(re.search(r"[$`]", one) for one in others) else Needs()
            return Needs(places=dict.fromkeys(others, _THERE))
        case "chown" | "chgrp" | "chmod" | "restorecon" | "setfacl" | "chcon":
            first = 0 if "--reference" in options else _CHANGES[program]
            owners = _owner_words(program, others[0]) if first and others else frozenset()
            return Needs(places=dict.fromkeys(others[first:], _THERE), owners=owners) if others[first:] else None
        case "cat" | "envsubst":
            return Needs(places=dict.fromkeys([one for one in others if one.startswith("/")], _THERE))
        case "sed" if others and not _has(options, "f"):
            files = others if "-e" in options or "--expression" in options else others[1:]
            return Needs(places=dict.fromkeys(files, _THERE))
        case "test" | "[" if len(words) > 1 and re.fullmatch(r"-[defrs]", words[0]):
            return Needs(places={words[1]: _FOLDER if words[0] == "-d" else _THERE}) if len(words) <= 3 else None
        case "." | "source" if others:
            return Needs(places={others[0]: _THERE})
        case "cd" if len(others) == 1:
            return Needs(places={others[0]: _FOLDER})
    return None


def _needs_of_copy(program: str, options: Mapping[str, str], others: Sequence[str]) -> Needs:
    *sources, target = others
    is_link = program == "ln" and _has(options, "s", "--symbolic")
    places = {} if is_link else dict.fromkeys(sources, _THERE)
    name = target.rstrip("/")
    places[posixpath.dirname(name)] = _FOLDER
    if target.endswith("/") or len(sources) > 1:
        places[name] = _FOLDER
    elif program == "ln" and not _has(options, "f", "--force"):
        places[name] = _MISSING
    copied = () if is_link else tuple(sources)
    return Needs(places=places, owners=_owners_of(options), makes=(name,), sources=copied)


def _owners_of(options: Mapping[str, str]) -> frozenset[str]:
    users = [options[one] for one in ("-o", "--owner") if options.get(one)]
    groups = [options[one] for one in ("-g", "--group") if options.get(one)]
    return _names({"passwd": users, "group": groups})


def _names(named: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the names as `find_conditions` takes them. A number needs no entry."""
    return frozenset(f"{kind} {name}" for kind, names in named.items() for name in names if name and not name.isdigit())


def _owner_words(program: str, word: str) -> frozenset[str]:
    if program == "chgrp":
        return _names({"group": [word]})
    if program != "chown":
        return frozenset()
    user, _, group = word.partition(":")
    return _names({"passwd": [user], "group": [group]})


def paths_of(commands: Iterable[StartCommand]) -> tuple[list[str], list[str], list[str]]:
    """Return the paths, the files whose time counts, and the owners that a host must be asked for."""
    needs = [one.needs for one in commands]
    known = [one for one in needs if one is not None]
    paths = dict.fromkeys(path for one in known for path in one.places)
    sources = dict.fromkeys(path for one in known for path in one.sources)
    return list(paths), list(sources), sorted({owner for one in known for owner in one.owners})


def find_conditions(
    commands: Iterable[StartCommand],
    state_of: Callable[[str], PlaceState],
    owners: Collection[str],
    newer: Collection[str],
) -> tuple[str, ...]:
    """Return the commands whose next result is unknown, each once. `owners`: those that exist. `newer`: files that can
    be newer than the process."""
    found: dict[str, None] = {}
    made: set[str] = set()
    for one in commands:
        needs = one.needs
        is_uncertain = one.can_end and (needs is None or not _are_met(needs, state_of, owners, made))
        if is_uncertain or (needs is not None and not {*newer}.isdisjoint(needs.sources)):
            found[one.shown] = None
        made |= {posixpath.normpath(path) for path in (needs.makes if needs else ())}
    return tuple(found)


def _are_met(
    needs: Needs, state_of: Callable[[str], PlaceState], owners: Collection[str], made: Collection[str]
) -> bool:
    def is_made(path: str) -> bool:
        plain = posixpath.normpath(path)
        return any(one == plain or one.startswith(f"{plain}/") for one in made)

    seen = {path: PlaceState.FOLDER if is_made(path) else state_of(path) for path in needs.places}
    return needs.owners <= {*owners} and all(seen[path] in states for path, states in needs.places.items())


class Source(NamedTuple):
    """From what a command makes a file."""

    paths: tuple[str, ...]
    is_copy: bool
    """It has the content of the one file."""


def source_of(command: str, path: str) -> Source | None:
    """Return from what a line makes the file `path`; None: from something else than files that it names."""
    shell = _SHELL.match(command)
    line = shell[1].strip("'\"") if shell else command
    name = posixpath.basename(path)
    making = [found for found in _lists(line) if any(name in part for part, _ in found)]
    parts = [_bare(part) for found in making for part, _ in found]
    writing = [part for part in parts if _program(part) in _MAKES]
    others = [part for part in parts if part not in writing and not _cannot_change(part)]
    if not writing or others or any(re.search(r"[$`]", part.replace("${", "$")) for part in writing):
        return None
    paths = dict.fromkeys(one for part in writing for one in _read_by(part))
    paths.pop(path, None)
    plain = len(writing) == 1 and _program(writing[0]) in ("cp", "install", "cat")
    return Source(tuple(paths), plain and len(paths) == 1 and "<<" not in writing[0])


def _cannot_change(part: str) -> bool:
    return _program(part) in (
        "exec",
        "chmod",
        "chown",
        "chgrp",
        "mkdir",
        "cd",
        "test",
        "[",
        "set",
        "true",
        "kafka-server-start.sh",
    )


def _read_by(part: str) -> Iterator[str]:
    """Yield the absolute paths that a command reads."""
    yield from re.findall(r"(?<!<)<\s*[\"']?(/[^\s\"'<>|&;]+)", part)
    try:
        words = shlex.split(_REDIRECTION.sub(" ", part))[1:]
    except ValueError:
        words = part.split()[1:]
    program = _program(part)
    options, others = _split(program, words)
    if program == "sed":
        others = others if "-e" in options or "--expression" in options else others[1:]
    elif program in ("cp", "install"):
        others = others[:-1]
    elif program in ("tee", "echo", "printf"):
        others = []
    yield from (one for one in others if one.startswith("/"))


def find_removals(
    commands: Iterable[StartCommand], directories: Collection[str], place_of: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    """Return each command that removes a log directory, or data in it, with this directory. `place_of`: a path without
    links."""
    found = {
        (one.shown, directory): None
        for one in commands
        for path, is_deep in removed_paths(one.text)
        for directory in directories
        if _removes(path, directory, is_deep=is_deep) or _removes(place_of(path), place_of(directory), is_deep=is_deep)
    }
    return tuple(found)


def removed_paths(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths that a command removes, and whether it removes folders too."""
    part = _bare(text)
    program = _program(part)
    if program not in ("rm", "find"):
        return
    try:
        words = shlex.split(part)[1:]
    except ValueError:
        words = part.split()[1:]
    if program == "rm":
        options, others = _split(program, words)
        is_deep = _has(options, "r", "--recursive") or _has(options, "R")
        yield from ((path, is_deep) for path in others if path.startswith("/"))
    elif "-delete" in words or "rm" in {posixpath.basename(word) for word in words}:
        for word in words:
            if word.startswith(("-", "(", "!")):
                return
            yield f"{word.rstrip('/')}/*", True


def _removes(path: str, directory: str, *, is_deep: bool) -> bool:
    plain, own = posixpath.normpath(path), posixpath.normpath(directory)
    above = [own]
    while above[-1] != posixpath.dirname(above[-1]):
        above.append(posixpath.dirname(above[-1]))
    if is_deep and any(fnmatchcase(one, plain) and one.count("/") == plain.count("/") for one in above):
        return True
    folder, name = posixpath.split(plain)
    if folder == own:
        return fnmatchcase(_IDENTITY, name) or (is_deep and name not in _HARMLESS_NAMES)
    return folder.startswith(f"{own}/")
