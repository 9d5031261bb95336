"""What a command that installs a package must be able to do without a person, and how it is tried before the stop.

A package manager decides by its options: apt-get without --yes passes where the same command with --yes refuses a held
package or an older version. So the trial has the words of the installation and one more (apt-get(8), dnf(8), yum(8),
zypper(8)). What a script of the site does is not known: its inventory names the trial.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_APT = ("apt-get", "apt", "aptitude")
_RPM = ("dnf", "dnf5", "yum", "microdnf")
_ZYPPER = ("zypper",)
_PACKAGE_TOOLS = ("dpkg", "rpm")
_TEST = "--setopt=tsflags=test"
_DRY_RUNS = ("--dry-run", "--download-only")
# Of each program: an option → what the run cannot do without it.
_NEEDS = {
    **dict.fromkeys(
        ("apt-get", "apt"),
        (
            (r"-[a-z]*y[a-z]*|--yes|--assume-yes|apt::get::assume-yes=(true|1|yes)", "--yes", "answer its question"),
            (
                r"--allow-downgrades|apt::get::allow-downgrades=(true|1|yes)",
                "--allow-downgrades",
                "take a node back to its earlier release",
            ),
        ),
    ),
    "aptitude": ((r"-[a-z]*y[a-z]*|--assume-yes", "--assume-yes", "answer its question"),),
    **dict.fromkeys(_RPM, ((r"-[a-z]*y[a-z]*|--assumeyes", "-y", "answer its question"),)),
    "zypper": (
        (r"-n|--non-interactive", "--non-interactive", "answer its question"),
        ("--oldpackage", "--oldpackage", "take a node back to its earlier release"),
    ),
}


def trial_of(install: Sequence[str]) -> tuple[str, ...]:
    """Return the command that tries an installation without rights and changes nothing; empty if none is known."""
    number = _number_of(install, _APT)
    return () if number is None else (*install[: number + 1], "--simulate", *install[number + 1 :])


def why_not_tried(install: Sequence[str], check: Sequence[str], download: Sequence[str]) -> str:
    """Return why a run could stop a node and then fail to install, as a sentence; empty if the commands try it."""
    number = _number_of(install, tuple(_NEEDS))
    if number is None:
        tool = _number_of(install, _PACKAGE_TOOLS)
        if tool is not None:
            return f"install names {install[tool]}, which resolves no dependencies: name apt-get, dnf or zypper"
        return "" if check else "check is missing: the command with which your script tries the installation"
    program, words = install[number].rpartition("/")[2], install[number + 1 :]
    for pattern, option, what in _NEEDS[program]:
        if not any(re.fullmatch(pattern, word, re.IGNORECASE) for word in words):
            return f"install needs {option}: without it, {program} cannot {what}"
    if trial := trial_of(install):
        if check and set(check) != set(trial):
            return f"check answers another question than install: remove it, and the run tries `{' '.join(trial)}`"
        return ""
    option = "--dry-run" if program in _ZYPPER else _TEST
    is_trial = any(word in download for word in (_DRY_RUNS if program in _ZYPPER else (_TEST,)))
    if not is_trial or not set(install) <= set(download):
        return (
            f"download must be the words of install and {option}: {program} tries the installation as root only, and "
            "the run calls download before the stop"
        )
    return "" if check else f"check is missing: a command that finds the package, such as {program} list"


def _number_of(words: Sequence[str], programs: Sequence[str]) -> int | None:
    return next((number for number, word in enumerate(words) if word.rpartition("/")[2] in programs), None)
