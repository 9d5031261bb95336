"""What is known of package managers: how an installation is tried before the stop, and what a repository offers.

A package manager decides by its options: apt-get without --yes passes where the same command with --yes refuses a held
package or an older version. So the trial has the words of the installation and one more (apt-get(8), dnf(8), yum(8),
zypper(8)).

A trial shows whether a node can go to a release, and not whether it can come back: for what is installed already, each
package manager answers that there is nothing to do. So the repository is asked for every release, also for the one that
runs. What a script of the site does is not known: its inventory names the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_APT = ("apt-get", "apt")
_DNF = ("dnf", "dnf5", "yum")
_RPM = (*_DNF, "microdnf")
_ZYPPER = ("zypper",)
_UNUSABLE = {
    **dict.fromkeys(("dpkg", "rpm"), "resolves no dependencies"),
    "aptitude": "removes packages without a question",
}
_TEST = "--setopt=tsflags=test"
_DRY_RUNS = ("--dry-run", "--download-only")
_APT_LOADS = (r"--download-only|-[a-z]*d[a-z]*", "--download-only"), (r"--reinstall", "--reinstall")
_HELD = r"--allow-change-held-packages|apt::get::allow-change-held-packages=(true|1|yes)"
_ASKS = "waits for an answer"
_NEVER_BACK = "cannot take a node back to its earlier release"
_REMOVES = "removes other packages that need the release that runs"
# Of each program: an option → what it does without it.
_NEEDS = {
    **dict.fromkeys(
        ("apt-get", "apt"),
        (
            (r"-[a-z]*y[a-z]*|--yes|--assume-yes|apt::get::assume-yes=(true|1|yes)", "--yes", _ASKS),
            (
                r"--allow-downgrades|apt::get::allow-downgrades=(true|1|yes)",
                "--allow-downgrades",
                _NEVER_BACK,
            ),
            (r"--no-remove|apt::get::remove=(false|0|no)", "--no-remove", _REMOVES),
        ),
    ),
    **dict.fromkeys(_RPM, ((r"-[a-z]*y[a-z]*|--assumeyes", "-y", _ASKS),)),
    "zypper": (
        (r"-n|--non-interactive", "--non-interactive", _ASKS),
        ("--oldpackage", "--oldpackage", _NEVER_BACK),
    ),
}
# Of each program: an option → what it does with it.
_REFUSES = {
    **dict.fromkeys(
        _RPM,
        (
            (r"--allowerasing", _REMOVES),
            (r"--skip-broken|--setopt=(.*\.)?strict=(0|false|no)", "ends without an error where nothing is installed"),
        ),
    ),
    "zypper": ((r"--force-resolution", _REMOVES),),
}
# Options that choose the repositories, which a question about a package has too. All of them have a value.
_CHOOSES = {
    **dict.fromkeys(
        _APT,
        r"-o|--option|-c|--config-file|-t|--target-release|--default-release|-a|--host-architecture",
    ),
    **dict.fromkeys(
        _RPM,
        r"--(repo|repoid|(en|dis)able-?repo|(en|dis)able-?plugin|setopt|config|releasever|installroot|exclude"
        r"|disable-?excludes(pkgs)?|forcearch)|-c|-x",
    ),
    "zypper": r"-r|--repo|--from|-R|--root|-D|--reposd-dir|-C|--cache-dir|-c|--config|-p|--plus-repo|--plus-content",
}
# `apt-get download` looks for its packages in the current folder only, where it loads no complete one again.
_CACHED = (
    'cache=; eval "$({config} shell cache Dir::Cache::Archives/d)"; echo "$named" | while IFS=\' \' read -r one rest; '
    'do test ! -f "$cache$one" || ln -s "$cache$one" .; done; '
)
# In a folder of its own, which is removed also if the connection ends. What is on standard output is kept as a list, if
# all of it was read: by what the repository says of the packages, their size and hash. The lists have some kilobytes.
_LIST = """(
home=$PWD; folder=$(mktemp -d) && trap 'cd /; rm -rf "$folder"' EXIT && trap 'exit 1' HUP INT PIPE TERM && \
cd "$folder" || exit 1
named=$({named}); kept={kept}
if test -s "$kept"; then cat "$kept"; exit; fi
{load}
{show} | tee list || exit 1
if test -s list && test ! -e unread && test "$kept"; then
mkdir -p "$home/{keep}" && cp list "$kept.$$" && sync "$kept.$$" && mv "$kept.$$" "$kept"
find "$home/{keep}" -maxdepth 1 -name 'package-*' -mtime +{days} -delete; fi >/dev/null 2>&1
)"""
_KEPT = '; test ! "$named" || kept=$home/{keep}/package-$(echo "$named" | sha256sum | cut -c -64)'
_KEPT_DAYS = 30
_VERSION = "{version}"
_RPM_VERSION = re.compile(r"[-=](?:\d+:)?\{version\}.*")


@dataclass(frozen=True, slots=True)
class PackageQuestion:
    """A command that shows whether a release is offered. It needs no right and changes nothing."""

    words: tuple[str, ...]
    shows: str
    """A regular expression: what its output has only if the release is offered. Exit codes do not tell it for each
    program (zypper download)."""


class _Words(NamedTuple):
    """The words of a known command."""

    number: int
    """Of the program."""
    program: str
    command: str
    """Such as install."""
    chosen: tuple[str, ...]
    """Options of _CHOOSES after the program, with their values."""
    before: tuple[str, ...]
    """Options before the command."""
    packages: tuple[str, ...]


def trial_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that tries an installation without rights and changes nothing; empty if none is known."""
    number = _number_of(install, _APT)
    return () if number is None else (*install[: number + 1], "--simulate", *install[number + 1 :])


def download_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that downloads what an installation needs, as root and before the stop; empty if none is
    known, and for files on the host."""
    read = _read(install)
    if read is None or all(word.startswith("/") for word in read.packages):
        return ()
    if read.program in _APT:
        number = install.index(read.command, read.number)
        return (*install[: number + 1], "--download-only", "--reinstall", *install[number + 1 :])
    return (*install, "--download-only" if read.program in _ZYPPER else _TEST)


def questions_of(install: Sequence[str]) -> tuple[PackageQuestion, ...]:
    """Return what must show that each package of a release is offered; empty if this is not known of the program."""
    read = _read(install)
    if read is None:
        return ()
    found = []
    for package in read.packages:
        if _VERSION not in package:
            continue
        if package.startswith("/"):
            found.append(PackageQuestion(("/usr/bin/test", "-f", package), ""))
            continue
        folder = install[read.number].rpartition("/")[0]
        before = tuple(install[: read.number])
        if read.program in _APT:
            words = (f"{folder}/apt-get", "download", "--print-uris", *read.chosen, package)
            found.append(PackageQuestion((*before, *words), r"^'\S+' \S+ \d+"))
        elif read.program in _ZYPPER:
            words = (f"{folder}/zypper", *read.before, "download", "--dry-run", *read.chosen, package)
            found.append(PackageQuestion((*before, *words), r"^Not downloading package|^\(\d+/\d+\) .*\.rpm"))
        else:
            available = "available" if read.program == "yum" else "--available"  # yum 3 has no --available
            words = (f"{folder}/{read.program}", "-q", "list", available, "--showduplicates", *read.chosen, package)
            found.append(PackageQuestion((*before, *words), r"(?i)^Available packages"))
    return tuple(found)


def names_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the packages of a release; without those of files. Empty if the program is not known."""
    read = _read(install)
    if read is None:
        return ()
    cut = re.compile(r"[=/].*") if read.program in _APT else _RPM_VERSION
    return tuple(cut.sub("", word) for word in read.packages if not word.startswith("/") and cut.search(word))


def print_files(install: Sequence[str], version: str, keep: str) -> str:
    """Return a line of a shell that prints the paths in the packages of a release, without rights; empty if none is
    known (yum 3).

    apt and zypper load a package for that, unless apt has left it in its cache. So they load it once: the list is kept
    in the folder `keep`, below the folder in which the shell begins, for some days.
    """
    read = _read(install)
    if read is None:
        return ""
    names, files = (
        [
            word.replace(_VERSION, version)
            for word in read.packages
            if _VERSION in word and word.startswith("/") is is_file
        ]
        for is_file in (False, True)
    )
    folder, before = install[read.number].rpartition("/")[0], install[: read.number]
    named, load = ":", ":"
    if read.program in _APT:
        words = [*before, f"{folder}/apt-get", "download", "-qq", *read.chosen, *names]
        named = f"{shlex.join([*words, '--print-uris'])} | cut -d ' ' -f 2-"
        cached = _CACHED.format(config=f"{folder}/apt-config")
        load = f"{cached}{shlex.join(words)} >&2 || exit 1" if names else ":"
        each = " ".join((*(["./*.deb"] if names else []), *map(shlex.quote, files)))
        read_one = '{ dpkg-deb --fsys-tarfile "$one" || touch unread; } | tar -t'
        show = f"for one in {each}; do {read_one} || touch unread; done"
    elif read.program in _ZYPPER:
        words = [*before, f"{folder}/zypper", "--pkg-cache-dir=.", *read.before, "download", *read.chosen, *names]
        named = shlex.join([*words, "--dry-run"])
        load = f"{shlex.join(words)} >&2 || exit 1" if names else ":"
        show = f"{{ find . {shlex.join(files)} -name '*.rpm' -exec rpm -qlp {{}} + || touch unread; }}"
    elif read.program == "yum":
        return ""
    else:
        words = [*before, f"{folder}/{read.program}", "-q", "repoquery", *read.chosen, "-l", *names]
        of_files = f"rpm -qlp {shlex.join(files)}" if files else ""
        show = f"{{ {'; '.join(filter(None, (shlex.join(words) if names else '', of_files)))}; }}"
    kept = _KEPT.format(keep=keep) if names and not files else ""  # files on the host are not loaded
    return _LIST.format(named=named, kept=kept, load=load, show=show, keep=keep, days=_KEPT_DAYS)


def remove_duplicates(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that ends an interrupted installation of rpm, which leaves the packages of both releases;
    empty for another program."""
    number = _number_of(install, _DNF)
    return () if number is None else (install[number], "remove", "-y", "--duplicates")


def replaces_held(install: Sequence[str]) -> bool:
    """Return whether an installation replaces a package that is held."""
    return _number_of(install, ("apt-get", "apt")) is None or any(
        re.fullmatch(_HELD, word, re.IGNORECASE) for word in install
    )


def is_apt(install: Sequence[str]) -> bool:
    return _number_of(install, _APT) is not None


def why_not_tried(install: Sequence[str], check: Sequence[str], download: Sequence[str]) -> str:
    """Return why a run could stop a node and then fail to install, as a sentence; empty if the commands try it."""
    number = _number_of(install, tuple(_NEEDS))
    if number is None:
        tool = _number_of(install, tuple(_UNUSABLE))
        if tool is not None:
            why = _UNUSABLE[install[tool].rpartition("/")[2]]
            return f"install names {install[tool]}, which {why}: name apt-get, dnf or zypper"
        return "" if check else "check is missing: the command with which your script tries the installation"
    program, words = install[number].rpartition("/")[2], install[number + 1 :]
    if program == "microdnf":
        return "microdnf does not show what a repository offers, so a rollback could fail: name dnf"
    for pattern, option, does in _NEEDS[program]:
        if not any(re.fullmatch(pattern, word, re.IGNORECASE) for word in words):
            return f"install needs {option}: without it, {program} {does}"
    for pattern, does in _REFUSES.get(program, ()):
        if found := [word for word in words if re.fullmatch(pattern, word, re.IGNORECASE)]:
            return f"install has {found[0]}: with it, {program} {does}"
    if not questions_of(install):
        return f"install names no package with {_VERSION} after the command of {program}"
    if check and set(check) != set(trial_of(install)):
        tried = " ".join(trial_of(install) or questions_of(install)[0].words)
        return f"check answers another question than install: remove it, and the run tries `{tried}`"
    return why_not_downloaded(install, download) if download else ""


def why_not_downloaded(install: Sequence[str], download: Sequence[str]) -> str:
    """Return why `download` does not show that an installation can be fetched, as a sentence; empty if it does."""
    read = _read(install)
    if read is None:
        return ""
    remove = f"remove it, and the run uses `{' '.join(download_of(install))}`" if download_of(install) else ""
    if read.program in _APT:
        missing = [one for pattern, one in _APT_LOADS if not any(re.fullmatch(pattern, word) for word in download)]
        if missing or not {*read.packages} <= {*download}:
            named = " and ".join((*missing, *(one for one in read.packages if one not in download)))
            return f"download needs {named}, so that it loads the packages before the stop" + (
                f": {remove}" if remove else ""
            )
        return ""
    options = _DRY_RUNS if read.program in _ZYPPER else (_TEST,)
    if not any(word in download for word in options) or not set(install) <= set(download):
        return f"download must be the words of install and {options[-1]}: {remove}"
    return ""


def _read(words: Sequence[str]) -> _Words | None:
    """Return the parts of the command of a known program; None for another one, and without packages."""
    number = _number_of(words, (*_APT, *_RPM, *_ZYPPER))
    if number is None:
        return None
    program = words[number].rpartition("/")[2]
    chosen: list[str] = []
    before: list[str] = []
    packages: list[str] = []
    command, is_value = "", False
    for word in words[number + 1 :]:
        is_chosen = is_value or re.fullmatch(rf"(?:{_CHOOSES[program]})(?:=.*)?", word) is not None
        if is_chosen and (command or program not in _ZYPPER):
            chosen.append(word)
        elif not command and (is_value or word.startswith("-")):
            before.append(word)
        elif word.startswith("-"):
            pass
        elif command:
            packages.append(word)
        else:
            command = word
        is_value = not is_value and is_chosen and "=" not in word
    return _Words(number, program, command, tuple(chosen), tuple(before), tuple(packages)) if packages else None


def _number_of(words: Sequence[str], programs: Sequence[str]) -> int | None:
    return next((number for number, word in enumerate(words) if word.rpartition("/")[2] in programs), None)
