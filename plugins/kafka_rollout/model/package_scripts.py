"""What the scripts of a package do with the owner and the mode of paths: an installation runs them after the stop.

A script is not understood as a whole. A line counts unless it is known to leave a path open to the user of the unit, so
a line whose path is unknown counts, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import NamedTuple

from kafka_rollout.model.file_access import Use, is_permitted

_CHANGES = re.compile(
    r"\b(chown|chgrp|chmod|setfacl|chcon|restorecon|chattr|dpkg-statoverride|usermod|userdel|deluser|gpasswd)\b"
    r"|\binstall\b.*\s-\w*[ogmd]"
)
_SEPARATORS = re.compile(r"[;&|()]+|\b(?:then|do|else)\b")
_ASSIGNED = re.compile(r"(?:^|[;\s])(\w+)=(\"[^\"]*\"|'[^']*'|[^\s;&|]*)")
_LOOP = re.compile(r"\bfor\s+(\w+)\s+in\s+([^;]*)")
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_SOURCES = re.compile(r"(?:\.|source)\s")
_MOST_FORMS = 16
_ADDS = re.compile(r"[ugoa]*\+[rwxXst]+(,[ugoa]*\+[rwxXst]+)*")
_KEEPS_OWNER = re.compile(r"(?:[go]+[-+=][rwxXst]*|u\+\w+)(?:,(?:[go]+[-+=][rwxXst]*|u\+\w+))*")
_MODE = re.compile(r"[0-7]?([0-7])([0-7])([0-7])")
_FOLDER = re.compile(r"d[r-][w-][xsS-]([r-][w-][xsS-])([r-][w-][xtT-])\S* (\S+):\S+ (/.*)")
_OF_USERS = ("usermod", "userdel", "deluser", "gpasswd")


@dataclass(frozen=True, slots=True)
class PackageScript:
    """A script of a package, or its folders."""

    name: str
    """Such as `postinst of kafka 4.3.1`."""
    lines: tuple[str, ...]
    """Without comments."""


def find_closing_lines(scripts: Sequence[PackageScript], uses: Mapping[str, Use], user: str) -> tuple[str, ...]:
    """Return the lines that can close one of the paths to the user of the unit, each after the name of its script.

    `uses`: absolute path → what the start does with it.
    """
    found: dict[str, None] = {}
    for script in scripts:
        values, owned = _values(script.lines), dict[str, bool]()
        for line in script.lines:
            if not _is_harmless(line, values, uses, user, owned):
                found[f"{script.name}: {line}"] = None
    return tuple(found)


class _Concerned(NamedTuple):
    use: Use
    is_above: bool
    """The path is a folder above the one that the start uses."""


def _is_harmless(
    line: str, values: Mapping[str, Sequence[str]], uses: Mapping[str, Use], user: str, owned: dict[str, bool]
) -> bool:
    """`owned`: the paths that the script has given to the user, and whether with all below; it grows."""
    if (folder := _FOLDER.fullmatch(line)) is not None:
        concerned = _concerned(folder[4], uses)
        return folder[3] == user or all(_permits(_bits(text), concerned) for text in (folder[1], folder[2]))
    of_line = [word for word in _words(line) if word.startswith("/")] if _CHANGES.search(line) else []
    for part in _SEPARATORS.split(line):
        if (match := _CHANGES.search(part)) is None:
            continue
        command, words = match[1] or "install", _words(part[match.start() :])[1:]
        options = [word for word in words if word.startswith("-")]
        if command in _OF_USERS:
            if (user in words or any(map(_is_computed, words))) and not any("a" in one[:3] for one in options):
                return False
            continue
        plain = [word for word in words if word not in options]
        named, is_known = _paths(plain, values)
        paths, goes_down = named or of_line, not named or any(re.match(r"-\w*R|--recursive", one) for one in options)
        concerned = [one for path in paths for one in _concerned(path, uses, goes_down=goes_down)]
        first = plain[0] if plain else ""
        if (is_known and paths and not concerned) or "--list" in options:
            continue
        if command == "chown" and user in (first, *re.split(r"[:.]", first)[:1]):
            owned |= dict.fromkeys(paths, goes_down)
            continue
        is_owner = bool(paths) and all(
            any(path == one or (down and path.startswith(f"{one}/")) for one, down in owned.items()) for path in paths
        )
        if command != "chmod" or not _leaves_open(first, concerned, is_owner=is_owner):
            return False
    return True


def _leaves_open(mode: str, concerned: Sequence[_Concerned], *, is_owner: bool) -> bool:
    """Return whether a path with the mode is open to its owner, to all, or as far as it was before."""
    if _ADDS.fullmatch(mode) is not None or (is_owner and _KEEPS_OWNER.fullmatch(mode) is not None):
        return True
    if (bits := _MODE.fullmatch(mode)) is None or not concerned:
        return False
    return all(_permits(int(one), concerned) for one in bits.groups()[: 1 if is_owner else 3])


def _bits(text: str) -> int:
    return sum(bit for bit, sign in zip((4, 2, 1), text, strict=True) if sign not in "-ST")


def _permits(bits: int, concerned: Sequence[_Concerned]) -> bool:
    return all(is_permitted(bits, Use.ENTER if one.is_above else one.use) for one in concerned)


def _concerned(path: str, uses: Mapping[str, Use], *, goes_down: bool = False) -> list[_Concerned]:
    """Return the uses of a path and of what is below it. A pattern of a shell stands for all in its folder."""
    fixed = re.split(r"[*?\[{]", path)[0]
    is_pattern = fixed != path
    base = fixed.rpartition("/")[0] if is_pattern else fixed.rstrip("/")
    below = [use for used, use in uses.items() if used.startswith(f"{base}/")]
    return [
        *(_Concerned(use, is_above=True) for use in below),
        *(_Concerned(use, is_above=False) for use in below if is_pattern or goes_down),
        *(_Concerned(use, is_above=False) for used, use in uses.items() if used == base),
    ]


def _values(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return variable → the literals that the script gives it; without those that get something else, and none if the
    script reads another one."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if _SOURCES.match(line):
            return {}
        for name, value in _ASSIGNED.findall(line):
            found.setdefault(name, set()).add(value.strip("\"'"))
        for name, value in _LOOP.findall(line):
            found.setdefault(name, set()).update(value.split())
    return {name: tuple(values) for name, values in found.items() if not any(map(_is_computed, values))}


def _is_computed(value: str) -> bool:
    return re.search(r"[$`]", value) is not None


def _paths(words: Sequence[str], values: Mapping[str, Sequence[str]]) -> tuple[list[str], bool]:
    """Return the absolute paths among words, and whether all words are known."""
    forms = [form for word in words for form in _forms(word, values)]
    return [one for one in forms if one.startswith("/")], not any(map(_is_computed, forms))


def _forms(word: str, values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the word with each value of its variables; as it is, if one is unknown."""
    names = [one or other for one, other in _VARIABLE.findall(word)]
    choices = list(islice(product(*(values.get(name, ()) for name in names)), _MOST_FORMS + 1))
    if not 0 < len(choices) <= _MOST_FORMS:
        yield word
        return
    for chosen in choices:
        form = word
        for value in chosen:
            form = _VARIABLE.sub(value.replace("\\", r"\\"), form, count=1)
        yield form


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.replace('"', "").replace("'", "").split()
