"""What the user of a node's unit can do with files of its host: enter, read and execute them.

The SSH user is another user, so what it can open itself shows nothing about the start. It follows each path as the
kernel does, and reads the modes of the file and of each folder in which a name is looked up. Nothing needs a right, and
the paths are in the input of the shell, not in its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafka_rollout.model.file_access import MAPPED, FileAccess, FileMode, UnitUser, Use, access_of
from kafka_rollout.model.host_state import PlaceState
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.model.unit_settings import BOUND_PATHS, CLOSED_PATHS, OF_USER
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.main_process import PROCESS

_MOST_LINKS = 40  # as in the kernel
# `walk PATH LINK FOLDER`, with FOLDER in place of LINK: `at` is the place, `closed` the first folder that cannot be
# entered, `way` each folder in which a name is looked up. `see`: `seen` is a PlaceState.
WALK = f"""\
walk() {{ at= closed= way= left={_MOST_LINKS} rest=$1; while test -n "$rest"; do part=${{rest%%/*}};
case $rest in */*) rest=${{rest#*/}};; *) rest=;; esac;
case $part in ''|.) continue;; esac; way=$way$tab$at/;
if test -z "$closed" && test -d "$at/" && ! test -x "$at/"; then closed=$at/; fi;
case $part in ..) at=${{at%/*}}; continue;; esac;
if test "$at/$part" = "$2"; then next=$3; elif test -L "$at/$part"; then next=$(readlink "$at/$part");
else at=$at/$part; continue; fi;
left=$((left - 1)); if test "$left" = 0; then closed=$at/; return; fi;
case $next in /*) at=;; esac; rest=$next/$rest; done; }}
see() {{ if test -n "$closed"; then seen=?; elif test -d "$at/"; then seen=d; elif test -e "$at"; then seen=+;
else seen=-; fi; }}
tab=$(printf '\\t')
"""
_FOLLOW = 'number=0; while IFS= read -r path; do walk "$path"; see; echo "$number $seen $at$way"; '
_FOLLOW += "number=$((number + 1)); done"
_FOLLOWED = re.compile(r"(\d+) ([+d?-]) (/?[^\t]*)((?:\t[^\t]+)*)")
# Paths of programs and of folders with libraries, an empty line, and the paths whose modes are asked. `ls` shows an
# access control list as `+`. What the SSH user can execute is on no mount with noexec; a container does not always show
# its mounts.
_MODES = """\
export LC_ALL=C; while IFS= read -r path && test -n "$path"; do echo "options $path";
if test -f "$path" && test -x "$path"; then echo 'mounted exec'; else
findmnt --noheadings --output OPTIONS --target "$path" 2>/dev/null | tail -n 1 | sed 's/^/mounted /'; fi; done
xargs -r -d '\\n' ls -ldnLU -- 2>/dev/null
"""
_MODE = re.compile(r"[a-z-]([rwxsStT-]{9})([.+@]?) +\d+ +(\d+) +(\d+) .*?(/.*)")  # ids have one width
_PROPERTIES = ",".join((*OF_USER, "ProtectHome", *BOUND_PATHS, *CLOSED_PATHS))
_BINDS = tuple(f"{name}=" for name in BOUND_PATHS)
# The names of groups as their ids; the primary group of the user has it as a member only if it is in `members`.
_USER = (
    PROCESS + "sed -n 's/^\\([UG]id\\|Groups\\):[[:space:]]*/process \\1 /p' /proc/$pid/status 2>/dev/null; "
    'uid=$(sed -n "s/^Uid:[[:space:]]*[0-9]*[[:space:]]*//p" /proc/$pid/status 2>/dev/null | cut -f1); '
    'echo "owner $(getent passwd "$uid" 2>/dev/null | cut -d: -f1)"; '
    "shown=$(LC_ALL=C systemctl show --property=" + _PROPERTIES + ' {unit}); echo "$shown"; '
    'of() {{ echo "$shown" | sed -n "s/^$1=//p"; }}; user=$(of User); user=${{user:-root}}; '
    'echo "name $user"; echo "id $(id -u -- "$user" 2>/dev/null)"; first=$(id -g -- "$user" 2>/dev/null); '
    'echo "first $first"; echo "all $(id -G -- "$user" 2>/dev/null)"; '
    'echo "members $(getent group "$first" | cut -d: -f4)"; '
    'for group in $(of Group); do echo "own $(getent group "$group" | cut -d: -f3)"; done; '
    'for group in $(of SupplementaryGroups); do echo "more $(getent group "$group" | cut -d: -f3)"; done; '
    f"for name in {' '.join(CLOSED_PATHS)}; "
    "do for path in $(of $name); do path=${{path#[-+]}}; "
    'path=${{path#[-+]}}; echo "$name $path $(readlink -m -- "$path")"; done; done'
)
_SANDBOX = re.compile(rf"({'|'.join(CLOSED_PATHS)}) (/\S*) (/.*)")
_HOMES = ("/home", "/root", "/run/user")


class Lookup(NamedTuple):
    """A path as a start uses it."""

    way: tuple[str, ...]
    """Each folder in which a name is looked up."""
    place: str
    """Behind all links."""
    use: Use


class Followed(NamedTuple):
    """Where a path leads."""

    way: tuple[str, ...]
    """Each folder in which a name is looked up."""
    place: str
    """Without links."""
    state: PlaceState


def read_way(text: str) -> tuple[str, ...]:
    """Read the folders of `way` of WALK."""
    return tuple(part.rstrip("/") or "/" for part in text.split("\t") if part)


def follow(commands: HostCommands, node: NodeSpec, paths: Iterable[str]) -> dict[str, Followed]:
    """Return where absolute paths lead, as far as the SSH user sees, without those that the host does not report."""
    wanted = [path for path in dict.fromkeys(paths) if path.isprintable()]
    text = "".join(f"{path}\n" for path in wanted)
    done = commands.shell.run(service_of(node).host, WALK + _FOLLOW, text=text)
    found = {}
    for match in map(_FOLLOWED.fullmatch, done.out.splitlines()):
        if match and int(match[1]) < len(wanted):
            way, place = read_way(match[4]), match[3] or "/"
            found[wanted[int(match[1])]] = Followed(way, place, PlaceState(match[2]))
    return found


def read_access(commands: HostCommands, node: NodeSpec, lookups: Sequence[Lookup]) -> list[FileAccess]:
    """Return what the user of the unit can do with each path."""
    if not lookups:
        return []
    user = read_unit_user(commands, node)
    programs = dict.fromkeys(one.place for one in lookups if one.use in MAPPED)
    places = dict.fromkeys(part for one in lookups for part in (*one.way, one.place))
    text = "".join(f"{path}\n" for path in (*programs, "", *places))
    modes = _modes(commands.shell.run(service_of(node).host, _MODES, text=text).out)
    return [
        access_of(user, [modes.get(part, part) for part in one.way], modes.get(one.place, one.place), one.use)
        for one in lookups
    ]


def _modes(text: str) -> dict[str, FileMode]:
    """Read the output of _MODES."""
    options: dict[str, list[str]] = {}
    path = ""
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "options":
            path = rest
        elif kind == "mounted":
            options[path] = rest.split(",")
    found = {}
    for match in filter(None, map(_MODE.fullmatch, text.splitlines())):
        bits, path = "".join("0" if sign in "-ST" else "1" for sign in match[1]), match[5]
        found[path] = FileMode(
            path=path,
            mode=int(bits, 2),
            user_id=int(match[3]),
            group_id=int(match[4]),
            has_acl=match[2] in ("+", "@"),
            is_on_noexec="noexec" in options[path] if path in options else None,
        )
    return found


def read_unit_user(commands: HostCommands, node: NodeSpec) -> UnitUser:
    """Return the user and the groups with which systemd starts the next process, or to whom the unit of root changes by
    itself, as the process shows.

    Source: systemd.exec(5), and get_supplementary_groups in src/core/exec-invoke.c: with Group=, the primary group of
    the user counts only if the user is one of its members.
    """
    service = service_of(node)
    lines = commands.run(node, _USER.format(unit=service.unit)).out.splitlines()
    shown = dict(line.split("=", 1) for line in lines if "=" in line.partition(" ")[0])
    name = _last(lines, "name") or service.user
    if "User" not in shown or not shown.keys() >= {"Group", "SupplementaryGroups"}:
        return UnitUser(name=name, unknown=f"host {service.host} does not report the user of {service.unit}")
    hidden = _HOMES if shown.get("ProtectHome") in ("yes", "true", "tmpfs") else ()
    # One line for each source:destination:options.
    binds = [word for line in lines if line.startswith(_BINDS) for word in line.partition("=")[2].split()]
    bound = tuple(f"{one}::".split(":")[1] or one for one in binds if shown.get("ProtectHome") == "tmpfs")
    user_id, first = _last(lines, "id"), _last(lines, "first")
    if user_id == "0" and (own := _user_of_process(lines)) is not None:
        return _with_sandbox(replace(own, hidden=hidden, bound=bound), service, lines)
    if user_id == "0" or "cap_dac_" in shown.get("AmbientCapabilities", "").lower():
        root = UnitUser(name=name, user_id=0, passes_modes=True, hidden=hidden, bound=bound)
        return _with_sandbox(root, service, lines)
    named = [line.partition(" ")[2] for line in lines if line.startswith(("own ", "more "))]
    wanted = len(f"{shown['Group']} {shown['SupplementaryGroups']}".split())
    if not user_id.isdigit() or not first.isdigit() or len(named) != wanted or not all(map(str.isdigit, named)):
        what = "user" if not user_id.isdigit() else "groups"
        return UnitUser(name=name, unknown=f"host {service.host} does not know the {what} of {service.unit} ({name})")
    groups = {int(word) for word in _last(lines, "all").split()}
    if shown["Group"] and name not in _last(lines, "members").split(","):
        groups -= {int(first)}
    group_ids = frozenset(groups | {*map(int, named)})
    user = UnitUser(name=name, user_id=int(user_id), group_ids=group_ids, hidden=hidden, bound=bound)
    return _with_sandbox(user, service, lines)


def _user_of_process(lines: Sequence[str]) -> UnitUser | None:
    """Return the user to whom a process of root has changed (setpriv, runuser, gosu); None without one."""
    ids = {line.split()[1]: line.split()[2:] for line in lines if line.startswith("process ")}
    users, groups = ids.get("Uid", []), ids.get("Gid", [])
    if len(users) < 2 or len(groups) < 2 or users[1] == "0":
        return None
    return UnitUser(
        name=_last(lines, "owner") or users[1],
        user_id=int(users[1]),
        group_ids=frozenset(map(int, (groups[1], *ids.get("Groups", ())))),
        is_changed=True,
    )


def _with_sandbox(user: UnitUser, service: ServiceSpec, lines: Sequence[str]) -> UnitUser:
    """systemd follows the links in these paths at each start: a path through the link of the release is then in the
    folder of that release."""
    found: dict[str, list[str]] = {}
    of_link = re.compile(rf"{re.escape(service.symlink)}(?=/|$)")
    for match in filter(None, map(_SANDBOX.fullmatch, lines)):
        path = match[3]
        if service.package is None and of_link.match(match[2]):
            before = service.installation.partition("{release}")[0]
            above, name, _ = path.partition(f"/{before.rpartition('/')[2]}")
            path = f"{above}{name}*" if name else f"{before}*"
        found.setdefault(match[1], []).append(path)
    return replace(
        user,
        inaccessible=tuple(found.get("InaccessiblePaths", ())),
        unexecutable=tuple(found.get("NoExecPaths", ())),
        executable=tuple(found.get("ExecPaths", ())),
    )


def _last(lines: Sequence[str], kind: str) -> str:
    return next((line.partition(" ")[2] for line in reversed(lines) if line.startswith(f"{kind} ")), "")


def why_refused(access: FileAccess) -> str:
    """Return the sentence's end about a path that the user of the unit cannot use; empty if it can."""
    return f"user {access.user} of the unit {access.refused}" if access.refused else ""


def repair_of(access: FileAccess, folder: str) -> str:
    """Return the remedy of a refused path that is in the folder of a release, or above it; it shows no secret."""
    if "noexec" in access.refused:
        return f"Mount the file system of {access.place} without noexec."
    if "ProtectHome" in access.refused:
        return f"Unpack releases to a folder outside {', '.join(_HOMES)}, and correct `installation` in the inventory."
    if "InaccessiblePaths" in access.refused or "NoExecPaths" in access.refused:
        return (
            f"Correct these paths of the unit (`systemctl edit --full`), such as by ExecPaths={folder}, and run "
            "`systemctl daemon-reload`."
        )
    inside = f"{access.place}/".startswith(f"{folder}/")
    if inside and "cannot execute" in access.refused:
        return f"Run `chmod a+rx {folder}/bin/*.sh` there as the owner."
    if inside:
        return f"Run `chmod -R a+rX {folder}` there as the owner, and unpack releases with `umask 022`."
    return f"Run `chmod a+x {access.place}` there as the owner, or add {access.user} to the group of this folder."
