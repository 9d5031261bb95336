"""Whether systemd would read a unit from other files, or other content, than it has loaded.

NeedDaemonReload shows a file whose time of modification is newer, and drop-ins that were added to or removed from a
folder that systemd knows (unit_need_daemon_reload in src/core/unit.c). It shows `no` for the first file in a new folder
of drop-ins, for a file or a mask that now precedes the loaded one, and for a file that was replaced by an older one,
such as a backup.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from kafka_rollout.base.wording import few
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of

# `systemctl cat` prints the files that systemd has loaded, and with SYSTEMCTL_INSTALL_CLIENT_SIDE (docs/ENVIRONMENT.md
# of systemd) those that it finds itself by the same rules. A search in no folder then finds nothing, which shows that
# it does. Each line is as `loaded …` or `found …`, after `Loaded=known` and `Found=known`; `Time=` is the last change
# of a file or of a link to it, `Loaded at=` when systemd has read all units (empty before 248), both in epoch seconds.
# What a generator writes at each reload is younger; its source is SourcePath.
_COMMAND = """\
export LC_ALL=C TZ=UTC; unset SYSTEMD_UNIT_PATH; found() {{ SYSTEMCTL_INSTALL_CLIENT_SIDE=1 systemctl cat {unit}; }}
text=$(systemctl cat {unit} 2>/dev/null) && echo Loaded=known && printf '%s\\n' "$text" | sed 's/^/loaded /'
if text=$(found 2>/dev/null) && ! SYSTEMD_UNIT_PATH=/dev/null found >/dev/null 2>&1; then
echo Found=known; printf '%s\\n' "$text" | sed 's/^/found /'; fi
systemctl show --property=Names {unit}
for folder in $(systemctl show --property=UnitPath --value); do
test -x "${{folder%/*}}" || ! test -e "${{folder%/*}}" || echo "unread $folder"
for one in "$folder" "$folder"/*service.d; do
if test -e "$one" && ! {{ test -r "$one" && test -x "$one"; }}; then echo "unread $one"; fi; done; done
at=$(systemctl show --property=UnitsLoadTimestamp --value) && test -n "$at" && echo "Loaded at=$(date -d "$at" +%s)"
for file in $(systemctl show --property=FragmentPath,SourcePath,DropInPaths --value {unit}); do
case $file in /run/systemd/generator*) continue;; esac
stat -c 'time %Z %n' "$file"; stat -L -c "time %Z $file" "$file"; done 2>/dev/null
"""
_HEADER = re.compile(r"# (/.*)")
_TIME = re.compile(r"time (\d+) (/.*)")
_MASKED = "is masked"


def read_reload(commands: HostCommands, node: NodeSpec) -> str | None:
    """Return why systemd must read the unit again, as the end of a sentence; empty if it must not, None if unknown.

    Needs no right. A unit that systemd has loaded as masked has nothing that can differ.
    """
    unit = service_of(node).unit
    done = commands.run(node, _COMMAND.format(unit=shlex.quote(unit)))
    lines = done.out.splitlines()
    values = read_properties(done.out)
    loaded, found = _texts(lines, "loaded"), _texts(lines, "found")
    names = values.get("Names", "").split() or [unit]
    hidden = [line.removeprefix("unread ") for line in lines if line.startswith("unread ")]
    if "Loaded=known" not in lines or "Found=known" not in lines or any(_can_add(one, names) for one in hidden):
        return None
    settings = _settings(loaded)
    if not settings and any(_MASKED in line for line in loaded):
        return ""
    if settings != _settings(found):
        return _difference(loaded, found)
    if not settings:
        return "systemd would find no setting in its files"
    at = values.get("Loaded at", "")
    times = [(int(match[1]), match[2]) for match in map(_TIME.fullmatch, lines) if match]
    newer = dict.fromkeys(path for time, path in times if at.isdigit() and time > int(at))
    return f"{few([*newer])} was changed or replaced after systemd had read all units" if newer else ""


def _texts(lines: list[str], kind: str) -> list[str]:
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


def _settings(texts: list[str]) -> list[str]:
    """Return the lines without comments, among them the names of files: systemd before 246 shows a link by its end."""
    lines = (line.strip() for line in texts)
    return [line for line in lines if line and not line.startswith(("#", ";"))]


def _difference(loaded: list[str], found: list[str]) -> str:
    before, after = ({match[1]: None for match in map(_HEADER.fullmatch, texts) if match} for texts in (loaded, found))
    more, fewer = few([path for path in after if path not in before]), few([one for one in before if one not in after])
    reads = f"would read {more}" if more else "would not read the same files"
    return f"systemd {reads}{f' in place of {fewer}' if fewer and more else f': {fewer}' if fewer else ''}"


def _can_add(folder: str, names: list[str]) -> bool:
    """Return whether a folder can have a file of one of the units: each folder of units, and the drop-ins of a name, of
    its template, of each part of it before a dash, and of all services."""
    name = folder.rpartition("/")[2]
    return not name.endswith(".d") or name in {one for unit in names for one in _drop_ins(unit)}


def _drop_ins(unit: str) -> Iterator[str]:
    stem, _, kind = unit.rpartition(".")
    yield f"{kind}.d"
    prefix, at, _ = stem.partition("@")
    for end in ("", "@") if at else ("",):
        yield from (f"{prefix[: dash.end()]}{end}.{kind}.d" for dash in re.finditer("-", prefix))
    yield from {f"{stem}.{kind}.d", f"{prefix}{at}.{kind}.d"}
