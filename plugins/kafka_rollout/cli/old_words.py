"""Words of the previous release that still work: no help lists them. The next release removes this module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

COMMANDS: Mapping[str, str] = {"roll": "upgrade", "roll-back": "rollback"}
OPTIONS: Mapping[str, str] = {
    "--approve-as": "--as",
    "--by": "--as",
    "--connection-file": "--command-config",
    "--log-dirs": "--log-dir",
    "--timeout": "--gate-timeout",
}
# Commands with options of these names now.
_HAVE_THEM: Mapping[str, Iterable[str]] = {"groups": ("--timeout",), "runs": ("--timeout",), "demo": tuple(OPTIONS)}
_JSON_FILES = ("scan", "metadata", "check")  # commands whose --json had a file


def current_words(words: Sequence[str]) -> list[str]:
    """Return a command line in the words of this release."""
    if not words:
        return []
    command, rest = COMMANDS.get(words[0], words[0]), list(words[1:])
    options = {old: new for old, new in OPTIONS.items() if old not in _HAVE_THEM.get(command, ())}
    if command in _JSON_FILES:
        rest = _without_json_files(rest)
    return [command, *(_renamed(word, options) for word in rest)]


def _renamed(word: str, options: Mapping[str, str]) -> str:
    name, equals, value = word.partition("=")
    return options.get(name, name) + equals + value


def _without_json_files(words: Iterable[str]) -> list[str]:
    """Replace `--json FILE` by `--json --output FILE`. The file `-` was standard output."""
    found: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        is_file = found[-1:] == ["--json"] and (word == "-" or not word.startswith("-"))
        if name == "--json" and equals:
            found += ["--json"] if value == "-" else ["--json", "--output", value]
        elif is_file:
            found += [] if word == "-" else ["--output", word]
        else:
            found.append(word)
    return found
