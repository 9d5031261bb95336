"""Mounts that only the processes of a node's unit see, so the same path is another file for the tool.

Source: systemd.exec(5), and setup_namespace in src/core/namespace.c: the deepest mount above a path counts. What only
closes a path or makes it read-only is not among them, because it shows no other file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from kafka_rollout.model.host_state import UnitMount
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unit_settings import BOUND_PATHS, OF_HOMES, OTHER_ROOTS
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, read_properties, service_of

_BINDS = (*BOUND_PATHS, "MountImages")
_FOLDERS = ("TemporaryFileSystem", *(name for name in OTHER_ROOTS if name not in _BINDS))
_PROPERTIES = (*_BINDS, *_FOLDERS, *OF_HOMES)
# systemd before 249 has no ExtensionImages=, and prints no line for it.
_ALWAYS_SHOWN = {*BOUND_PATHS, "TemporaryFileSystem", "RootDirectory", *OF_HOMES}
_EXTENDED = ("/usr", "/opt")
_TMP = ("/tmp", "/var/tmp")  # noqa: S108 - of the unit
_HOMES = ("/home", "/root", "/run/user")
_BIND = re.compile(r"(-?)(/[^:]*)(?::(/[^:]*)(?::[^/]*)?)?")
_FOLDER = re.compile(r"-?(/[^:]*)(?::[^/]*)?")
# Per path: where it leads, and which file it is; `?` if the SSH user cannot see it, `-` if there is none.
_EACH = """\
export LC_ALL=C; while IFS= read -r path; do file=$(stat -L -c %d:%i "$path" 2>&1) || case $file in
*"No such file"*|*"Not a directory"*) file=-;; *) file=?;; esac
echo "$file $(readlink -f "$path" || echo "$path")"; done
"""
_PLACE = re.compile(r"(\d+:\d+|[?-]) (/.*)")


def read_unit_mounts(commands: HostCommands, node: NodeSpec) -> tuple[UnitMount, ...] | None:
    """Return the mounts of the next start; None if the host does not report them. Needs no right."""
    service = service_of(node)
    shown = commands.run(
        node, f"LC_ALL=C systemctl show --property={','.join(_PROPERTIES)} {shlex.quote(service.unit)}"
    )
    values = read_properties(shown.out)
    named = [] if _ALWAYS_SHOWN - values.keys() else list(_named(values))
    if _ALWAYS_SHOWN - values.keys() or None in named:
        return None
    mounts = [one for one in named if one is not None]
    asked = list(dict.fromkeys(path for one in mounts for path in (one[1], one[2]) if path))
    if not asked:
        return ()
    done = commands.shell.run(service.host, _EACH, text="".join(f"{path}\n" for path in asked))
    found = [match for match in map(_PLACE.fullmatch, done.out.splitlines()) if match]
    if len(found) != len(asked):
        return None
    files = {path: match[1] for path, match in zip(asked, found, strict=True)}
    places = {path: match[2] for path, match in zip(asked, found, strict=True)}
    return tuple(
        UnitMount(setting=setting, path=path, place=places[path], is_same=_is_same(path, source, files))
        for setting, path, source, is_optional in mounts
        if not (is_optional and files[source] == "-")
    )


def _is_same(path: str, source: str, files: dict[str, str]) -> bool:
    """Return whether a mount shows what the host has there: also for a folder that the host binds itself."""
    if path == source:
        return True
    return bool(source) and ":" in files[path] and files[path] == files[source]


def _named(values: dict[str, str]) -> Iterator[tuple[str, str, str, bool] | None]:
    """Yield setting, path and source of each mount, and whether systemd leaves it out without its source; None for a
    text that has several readings, such as a path with a space. The source of a file system is empty."""
    for name in _BINDS:
        for word in values.get(name, "").split():
            match = _BIND.fullmatch(word)
            source, path = (match[2], match[3] or match[2]) if match else ("", "")
            yield (f"{name}={word}", _plain(path), _plain(source), match[1] == "-") if match else None
    for name in _FOLDERS:
        for word in values.get(name, "").split():
            match, setting = _FOLDER.fullmatch(word), f"{name}={word}"
            if match is None:
                yield None
            elif name == "TemporaryFileSystem":
                yield setting, _plain(match[1]), "", False
            elif name.startswith("Root"):
                yield setting, "/", _plain(match[1]), False
            else:
                yield from ((setting, path, "", False) for path in _EXTENDED)
    if values["PrivateTmp"] != "no":
        yield from ((f"PrivateTmp={values['PrivateTmp']}", path, "", False) for path in _TMP)
    if values["ProtectHome"] == "tmpfs":
        yield from (("ProtectHome=tmpfs", path, "", False) for path in _HOMES)


def _plain(path: str) -> str:
    return path.rstrip("/") or "/"
