"""What is known of package managers: how an installation is tried before the stop, and what the answer shows.

What is believed must be what will be used: a trial has the user (root), the lists, the caches and the words of the
installation, and options that make it load and test the packages only (apt-get(8), dnf(8), zypper(8)). For what
is installed already, dnf and zypper answer that there is nothing to do, which does not show that a node can come back:
then a second trial loads the package of this release again. What a script of the site does is not known: its inventory
names the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

_APT = ("apt-get", "apt")
_DNF = ("dnf", "dnf5")
_ZYPPER = ("zypper",)
_KNOWN = (*_APT, *_DNF, *_ZYPPER)
_UNUSABLE = {
    **dict.fromkeys(("dpkg", "rpm"), "resolves no dependencies"),
    "aptitude": "removes packages without a question",
    # Of yum 3, which says "already installed. Checking for update" (YumBase.install). Later yum is a link to dnf.
    "yum": "installs no older version before RHEL 8",
    "microdnf": "tests no installation, so a rollback could fail",
}
_TEST = "--setopt=tsflags=test"
# Otherwise dnf removes what a test has loaded with the next installation, and a rollback would load it again.
_KEEP = "--setopt=keepcache=1"
_HELD = r"--allow-change-held-packages|apt::get::allow-change-held-packages=(true|1|yes)"
_ASKS = "waits for an answer"
_NEVER_BACK = "cannot take a node back to its earlier release"
_REMOVES = "removes other packages that need the release that runs"
_HIDES = "does not print what it does, which the run reads"
# Of each program: an option → what it does without it.
_NEEDS = {
    **dict.fromkeys(
        _APT,
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
    **dict.fromkeys(_DNF, ((r"-[a-z]*y[a-z]*|--assumeyes", "-y", _ASKS),)),
    "zypper": (
        (r"-n|--non-interactive", "--non-interactive", _ASKS),
        ("--oldpackage", "--oldpackage", _NEVER_BACK),
    ),
}
# Of each program: an option → what it does with it.
_REFUSES = {
    **dict.fromkeys(_APT, ((r"-[a-z]*qq[a-z]*|(-q|--quiet)=\d+", _HIDES),)),
    **dict.fromkeys(
        _DNF,
        (
            (r"-[a-z]*q[a-z]*|--quiet", _HIDES),
            (r"--allowerasing", _REMOVES),
            (r"--skip-broken|--setopt=(.*\.)?strict=(0|false|no)", "ends without an error where nothing is installed"),
        ),
    ),
    "zypper": ((r"-[a-z]*q[a-z]*|--quiet", _HIDES), (r"--force-resolution", _REMOVES)),
}
# Options that choose the repositories, which a question about a package has too. All of them have a value.
_CHOOSES = {
    **dict.fromkeys(
        _APT,
        r"-o|--option|-c|--config-file|-t|--target-release|--default-release|-a|--host-architecture",
    ),
    **dict.fromkeys(
        _DNF,
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
find "$home/{keep}" -maxdepth 1 -name '{kind}-*' -mtime +{days} -delete; fi >/dev/null 2>&1
)"""
_KEPT = '; test ! "$named" || kept=$home/{keep}/{kind}-$(echo "$named" | sha256sum | cut -c -64)'
_KEPT_DAYS = 30
# `script NAME` before the lines of each, and `package NAME` before those of a package.
_SCRIPTS_OF_DEB = (
    'name=$(dpkg-deb --field "$one" Package) && echo "package $name" && '
    'for script in preinst postinst prerm postrm; do echo "script $script of $name"; '
    'dpkg-deb --info "$one" $script 2>/dev/null | sed "s/^/text /"; done'
)
_FOLDERS_OF_RPM = "'[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\\n]'"
_OF_RPM = (
    'echo "package $name"; echo "script scriptlets of $name"; rpm -q {file} --scripts --triggers "$one" | '
    'sed "s/^/text /"; echo "script folders of $name"; rpm -q {file} --qf ' + _FOLDERS_OF_RPM + ' "$one" | '
    'sed -n "s/^d/text d/p"'
)
_SCRIPTS_OF_RPM = "name=$(rpm -qp --qf '%{NAME}' \"$one\") && { " + _OF_RPM.replace("{file}", "-p") + "; }"
SCRIPTS_OF_INSTALLED = (
    "for one in {names}; do if dpkg-query -W -- $one >/dev/null 2>&1; then "
    'echo "package $one"; for script in preinst postinst prerm postrm; do echo "script $script of $one"; '
    'dpkg-query --control-show $one $script 2>/dev/null | sed "s/^/text /"; done; fi; '
    "if rpm -q -- $one >/dev/null 2>&1; then name=$one; "
    + _OF_RPM.replace("{file} ", "").replace("{", "{{").replace("}", "}}")
    + "; fi; done; echo whole"
)
"""A line of a shell that prints the scripts of the installed packages `names`."""
# The trial of an installation leaves what it has loaded in the cache, which all users can read.
_DNF_CACHED = (
    "for one in $(find $(sed -n 's/^cachedir *= *//p' /etc/dnf/dnf.conf 2>/dev/null) /var/cache/dnf /var/cache/libdnf5 "
    '{patterns} 2>/dev/null); do ln -sf "$one" .; done; ls ./*.rpm >/dev/null 2>&1 || {load} >&2'
)
_VERSION = "{version}"
_RPM_VERSION = re.compile(r"[-=](?:\d+:)?\{version\}.*")


_SYSTEM = "@System"  # zypper's name for what is installed
# The lines that say that no repository, and no file, has the package.
_MISSING = re.compile(
    r"^.*(?:No match for argument|Unable to find a match|Installed package .+ not available"
    r"|installed, but not available"
    rf"|No provider of .+ found|Forcing installation of .+ from repository '{_SYSTEM}'"
    r"|Version '.+' for '.+' was not found|Unable to locate package|has no installation candidate"
    r"|is not possible, it cannot be downloaded|Could not open: |Specified local path does not exist).*$",
    re.MULTILINE,
)
# Those that say that a lock (versionlock) or an exclude of dnf keeps a package that a repository has.
_EXCLUDED = re.compile(
    r"^.*(?:filtered out by exclude filtering|matches only packages excluded).*$",
    re.MULTILINE,
)
# Those that say that a repository could not be read: what is missing can be in it.
_UNREAD = re.compile(
    r"^.*(?:Curl error|Permission denied|Failed to (?:download|fetch)|Ignoring repositories|Skipping repository"
    r"|Problem retrieving|Cannot retrieve|Could not retrieve).*$",
    re.MULTILINE,
)
_CAUSE = re.compile(
    r"^.*(?:Curl error|Error message: |not found on medium|Failed to fetch|Signature verification failed"
    r"|nothing provides|Problem(?: \d+)?: (?!conflicting requests)).*$",
    re.MULTILINE,
)
# Exit codes of zypper after a success (zypper(8)): a reboot or a restart is needed, or a repository was skipped.
_NOTES = (102, 103, 106)
_APT_LOADED = "in download only mode"


class PackageAnswer(Enum):
    """What a trial has shown."""

    OFFERED = auto()
    """The package was loaded, and can be installed."""
    INSTALLED = auto()
    """Nothing: the release is installed, so nothing was loaded."""
    MISSING = auto()
    """All repositories were read, and none has the package."""
    UNKNOWN = auto()
    """Nothing."""


class WantedPackage(NamedTuple):
    """A package that an installation names."""

    name: str
    """Empty for a file."""
    version: str
    """As the package manager writes it, with wildcards of a shell; `*` for any."""
    file: str = ""
    """Its path on the host."""


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


def download_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that loads and tests what an installation needs, as root and before the stop; empty if none is
    known."""
    read = _read(install)
    if read is None:
        return ()
    if read.program in _DNF:
        return (*install, _TEST, _KEEP)
    options = ("--download-only", "--reinstall") if read.program in _APT else ("--download-only",)
    number = install.index(read.command, read.number) + 1
    return (*install[:number], *options, *install[number:])


def download_again_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the same for a release that is installed; empty where `download_of` loads it too."""
    read = _read(install)
    if read is None or read.program in _APT:
        return ()
    number = install.index(read.command, read.number)
    others = {one for one in read.packages if _VERSION not in one}
    words = [word for word in install[number + 1 :] if word not in others]
    if read.program in _DNF:
        return (*install[:number], "reinstall", *words, _TEST, _KEEP)
    return (*install[: number + 1], "--download-only", "--force", *words)


def refresh_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that reads the lists of the repositories again, and leaves those of a repository that does not
    respond as they are; empty with apt, whose lists change only with `apt-get update`, and for an unknown program."""
    read = _read(install)
    if read is None or read.program in _APT:
        return ()
    if read.program in _DNF:
        # Not `clean expire-cache`: without the repository, dnf could install nothing then, nor take a paused run back.
        return (*install[: read.number + 1], *read.chosen, "makecache", "--refresh")
    return (*install[: read.number + 1], *read.before, "refresh")


def find_unread(printed: str) -> str:
    """Return the line that says that a repository could not be read; empty if there is none."""
    found = _UNREAD.search(printed)
    return "" if found is None else found[0].strip(" -")


def read_answer(install: Sequence[str], version: str, code: int, printed: str) -> tuple[PackageAnswer, str]:
    """Return what a trial of `download_of` or `download_again_of` has shown, and the line that says it; "" for the last
    line. `printed`: also by the refresh, in the locale C. `version`: of the package."""
    number = _number_of(install, _KNOWN)
    if number is None:
        return (PackageAnswer.OFFERED if code == 0 else PackageAnswer.UNKNOWN), ""
    version = version.rpartition(":")[2]  # zypper does not print the epoch
    if excluded := _EXCLUDED.search(printed):  # dnf 4 prints also that it finds no match
        return PackageAnswer.UNKNOWN, excluded[0].strip()
    if missing := _MISSING.search(printed):
        if unread := find_unread(printed):
            return PackageAnswer.UNKNOWN, unread
        why = missing[0].strip()
        return PackageAnswer.MISSING, "no repository has the version that is installed" if _SYSTEM in why else why
    if code != 0 and not (code in _NOTES and install[number].rpartition("/")[2] in _ZYPPER):
        cause = _CAUSE.search(printed)
        return PackageAnswer.UNKNOWN, cause[0].strip(" -") if cause else ""
    lines = [line.strip() for line in printed.splitlines()]
    for line in lines:
        if "Nothing to do" in line or (version in line and "already installed" in line):
            return PackageAnswer.INSTALLED, line
    shown = _APT_LOADED if is_apt(install) else version
    return (PackageAnswer.OFFERED if shown in printed else PackageAnswer.UNKNOWN), ""


def unlock_of(printed: str) -> str:
    """Return how an installation gets a package that a lock or an exclude keeps, as a remedy; empty without one.

    `printed`: the line of `read_answer`. versionlock is a part of dnf5, and a plugin of dnf 4.
    """
    if _EXCLUDED.search(printed) is None:
        return ""
    return (
        "Remove the lock or the exclude of the package (`dnf versionlock list`, excludepkgs of dnf.conf and of the "
        "repository). Or let `install` pass a lock: with --setopt=disable_excludes=* for dnf5, with "
        "--disableplugin=versionlock for dnf 4; print the sudoers file again. Then plan again."
    )


def names_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the packages of a release; without those of files. Empty if the program is not known."""
    read = _read(install)
    if read is None:
        return ()
    cut = re.compile(r"[=/].*") if read.program in _APT else _RPM_VERSION
    return tuple(cut.sub("", word) for word in read.packages if not word.startswith("/") and cut.search(word))


def wanted_packages(install: Sequence[str], version: str) -> tuple[WantedPackage, ...]:
    """Return the packages that an installation of a version leaves on the host; empty if the program is not known."""
    read = _read(install)
    found = []
    for word in () if read is None else read.packages:
        if word.startswith("/"):
            found.append(WantedPackage("", "*", word.replace(_VERSION, version)))
            continue
        cut = re.search(r"[=/]", word) if read is not None and read.program in _APT else _RPM_VERSION.search(word)
        name, rest = (word, "") if cut is None else (word[: cut.start()], word[cut.start() :])
        found.append(WantedPackage(name, "*" if rest[:1] in ("", "/") else rest[1:].replace(_VERSION, version)))
    return tuple(found)


def print_files(install: Sequence[str], version: str, keep: str) -> str:
    """Return a line of a shell that prints the paths in the packages of a release, without rights; empty if none is
    known.

    apt and zypper load a package for that, unless apt has left it in its cache. So they load it once: the list is kept
    in the folder `keep`, below the folder in which the shell begins, for some days.
    """
    read = _read(install)
    if read is None:
        return ""
    names, files = _of_version(read, version)
    folder, before = install[read.number].rpartition("/")[0], install[: read.number]
    if read.program in _APT:
        each = " ".join((*(["./*.deb"] if names else []), *map(shlex.quote, files)))
        read_one = '{ dpkg-deb --fsys-tarfile "$one" || touch unread; } | tar -t'
        show = f"for one in {each}; do {read_one} || touch unread; done"
    elif read.program in _ZYPPER:
        show = f"{{ find . {shlex.join(files)} -name '*.rpm' -exec rpm -qlp {{}} + || touch unread; }}"
    else:
        words = [*before, f"{folder}/{read.program}", "-q", "repoquery", *read.chosen, "-l", *names]
        of_files = f"rpm -qlp {shlex.join(files)}" if files else ""
        show = f"{{ {'; '.join(filter(None, (shlex.join(words) if names else '', of_files)))}; }}"
    named, load = _load(install, read, names)
    return _list(named, load, show, "package", "" if files else keep)


def print_scripts(install: Sequence[str], version: str, keep: str) -> str:
    """Return a line of a shell that prints the scripts in the packages of a release, and the folders of those of rpm,
    as `SCRIPTS_OF_INSTALLED`; empty if no package is known. It needs no right, and keeps what it prints as
    `print_files`. Of dnf, it reads what the trial of the installation has left in the cache."""
    read = _read(install)
    if read is None:
        return ""
    names, files = _of_version(read, version)
    each = " ".join((*([f"./*.{'deb' if read.program in _APT else 'rpm'}"] if names else []), *map(shlex.quote, files)))
    show_one = _SCRIPTS_OF_DEB if read.program in _APT else _SCRIPTS_OF_RPM
    named, load = _load(install, read, names)
    if read.program in _DNF and names:
        patterns = [f"-name {shlex.quote(re.sub(r'-[0-9]+:', '-', name) + '*.rpm')}" for name in names]
        words = [*install[: read.number + 1], "-q", *read.chosen, "download", "--destdir=.", *names]
        load = _DNF_CACHED.format(patterns=" -o ".join(patterns), load=shlex.join(words))
    show = f"for one in {each}; do {show_one} || touch unread; done; test -e unread || echo whole"
    is_kept = not files and read.program not in _DNF
    return _list(named, load, f"{{ {show}; }}", "scripts", keep if is_kept else "")


def _of_version(read: _Words, version: str) -> tuple[list[str], list[str]]:
    """Return the names and the files of the packages that have the version of the release."""
    words = [word.replace(_VERSION, version) for word in read.packages if _VERSION in word]
    return [word for word in words if not word.startswith("/")], [word for word in words if word.startswith("/")]


def _load(install: Sequence[str], read: _Words, names: Sequence[str]) -> tuple[str, str]:
    """Return the lines that print what would be loaded, and that load it into the current folder; without those of
    dnf."""
    folder, before = install[read.number].rpartition("/")[0], install[: read.number]
    if read.program in _APT:
        words = [*before, f"{folder}/apt-get", "download", "-qq", *read.chosen, *names]
        cached = _CACHED.format(config=f"{folder}/apt-config")
        named = f"{shlex.join([*words, '--print-uris'])} | cut -d ' ' -f 2-"
        return named, f"{cached}{shlex.join(words)} >&2 || exit 1" if names else ":"
    if read.program in _ZYPPER:
        words = [*before, f"{folder}/zypper", "--pkg-cache-dir=.", *read.before, "download", *read.chosen, *names]
        return shlex.join([*words, "--dry-run"]), f"{shlex.join(words)} >&2 || exit 1" if names else ":"
    return ":", ":"


def _list(named: str, load: str, show: str, kind: str, keep: str) -> str:
    """`kind`: the begin of the name of a kept list; empty `keep`: what files on the host have is not loaded."""
    kept = _KEPT.format(keep=keep, kind=kind) if keep else ""
    return _LIST.format(named=named, kept=kept, load=load, show=show, kind=kind, keep=keep, days=_KEPT_DAYS)


def remove_duplicates(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that ends an interrupted installation of rpm, which leaves the packages of both releases;
    empty for another program."""
    number = _number_of(install, _DNF)
    return () if number is None else (install[number], "remove", "-y", "--duplicates")


def replaces_held(install: Sequence[str]) -> bool:
    """Return whether an installation replaces a package that is held."""
    return not is_apt(install) or any(re.fullmatch(_HELD, word, re.IGNORECASE) for word in install)


def is_apt(install: Sequence[str]) -> bool:
    return _number_of(install, _APT) is not None


def why_not_tried(install: Sequence[str], check: Sequence[str], download: Sequence[str]) -> str:
    """Return why a run could stop a node and then fail to install, as a sentence; empty if the commands try it."""
    number = _number_of(install, _KNOWN)
    if number is None:
        tool = _number_of(install, tuple(_UNUSABLE))
        if tool is not None:
            why = _UNUSABLE[install[tool].rpartition("/")[2]]
            return f"install names {install[tool]}, which {why}: name apt-get, dnf or zypper"
        return "" if check else "check is missing: the command with which your script tries the installation"
    program, words = install[number].rpartition("/")[2], install[number + 1 :]
    for pattern, option, does in _NEEDS[program]:
        if not any(re.fullmatch(pattern, word, re.IGNORECASE) for word in words):
            return f"install needs {option}: without it, {program} {does}"
    for pattern, does in _REFUSES[program]:
        if found := [word for word in words if re.fullmatch(pattern, word, re.IGNORECASE)]:
            return f"install has {found[0]}: with it, {program} {does}"
    read = _read(install)
    first = next((place for place, word in enumerate(words) if _VERSION in word), None)
    if read is None or first is None or not any(_VERSION in one for one in read.packages):
        return f"install names no package with {_VERSION} after the command of {program}"
    late = next((word for word in words[first:] if word.startswith("-")), "")
    if late and program in _ZYPPER:
        return f"zypper reads no option after a package: write {late} before {words[first]}"
    for key, given, own in (("check", check, ()), ("download", download, download_of(install))):
        if given and tuple(given) != own:
            return f"{key} is for a script only: remove it, and the run tries `{' '.join(download_of(install))}`"
    return ""


def _read(words: Sequence[str]) -> _Words | None:
    """Return the parts of the command of a known program; None for another one, and without packages."""
    number = _number_of(words, _KNOWN)
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
