"""What a path that does not exist does to a node's next start, as far as the unit and the options show it.

A run stops a unit and then starts it, which is not `systemctl restart`: at the stop, systemd removes the folders of
RuntimeDirectory= unless RuntimeDirectoryPreserve=yes, and those of PrivateTmp= (systemd.exec(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_rollout.model.configs import provider_files
from kafka_rollout.model.host_state import Absence
from kafka_rollout.model.unit_settings import BOUND_PATHS, MADE_FOLDERS, OTHER_ROOTS
from kafka_rollout.nodes.runtimes.hosts.shell_lines import OUTPUT
from kafka_rollout.nodes.runtimes.start_files import paths_in, paths_of_agent, paths_of_settings

# Which file it is, only a shell, systemd or the JVM knows.
_OPEN = re.compile(r"[$*?\[\]{}~%`]")
_AGENTS = ("-javaagent:", "-agentpath:")
_RULES = re.compile(r".*\.(ya?ml|xml|properties|conf|json)")
"""Among the options of an agent. Other paths can be of URLs (`agentContext=/jolokia`), and of files that it writes. The
JMX exporter (`PORT:FILE`) and Jolokia (`config=FILE`) end the start without theirs."""
_OF_FILE = re.compile(r"-D[\w.-]*(?:file|store|conf(?:ig(?:uration)?)?|location|security\.properties)=", re.IGNORECASE)
_LEFT_OUT = re.compile(
    r"-D(java\.security\.auth\.login\.config|java\.io\.tmpdir|[\w.-]*log(s|ging)?[._-]?(file|dir))=", re.IGNORECASE
)
_WRITTEN = re.compile(r".*\.(log|out|err|pid|lock|sock|jfr|hprof|tmp)")
_FLAGS = "-XX:VMOptionsFile="
_MAKES_FOLDER = re.compile(r"(?:^|[\s/'\"])(?:mkdir|install(?:\s.*)?\s-\w*d)\s")
_MAKES = re.compile(r"(?:^|[\s/'\"])(?:cp|install|ln|mv|rsync|tar|unzip|curl|wget|tee|touch)\s")
_COMMANDS = re.compile(r";|&&|\|\||\|")
_DIRECTORIES = {name: place for name, place in MADE_FOLDERS.items() if name != "RuntimeDirectory"}
_RUN, _TMP = "/run", ("/tmp", "/var/tmp")  # noqa: S108 - of the unit
SHOWN = (
    *(*_DIRECTORIES, "RuntimeDirectory", "RuntimeDirectoryPreserve", "PrivateTmp"),
    *(*BOUND_PATHS, *OTHER_ROOTS),
)
"""Properties that `systemctl show` must print for `Prepared.of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the unit makes itself before its process starts."""

    folders: frozenset[str]
    """Themselves alone."""
    trees: frozenset[str]
    """With all that is in them."""
    is_other_root: bool
    """The process sees other files than the host."""
    mounted: frozenset[str] = frozenset()
    """Those of them that BindPaths= mounts there."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Folder whose content systemd removes at the stop of the unit → the setting."""

    @classmethod
    def of(cls, shown: Iterable[str], lines: Iterable[str]) -> Prepared:
        """`shown`: lines `property=value` of systemctl. `lines`: the commands of the unit, and their scripts."""
        folders: set[str] = set()
        trees: set[str] = set()
        mounted: set[str] = set()
        removed: dict[str, str] = {}
        is_other_root = False
        values = {name: value for name, _, value in (line.partition("=") for line in shown)}
        for name, value in values.items():
            words = value.split()
            if name in _DIRECTORIES:
                folders |= {f"{_DIRECTORIES[name]}/{word.partition(':')[0]}" for word in words}
            elif name == "RuntimeDirectory":
                made = {f"{_RUN}/{word.partition(':')[0]}": f"{name}={word}" for word in words}
                folders |= made.keys()
                removed |= {} if values.get("RuntimeDirectoryPreserve") == "yes" else made
            elif name == "PrivateTmp" and value.strip() not in ("", "no"):
                removed |= dict.fromkeys(_TMP, f"{name}={value}")
            elif name in ("BindPaths", "BindReadOnlyPaths"):
                mounted |= {bound(path) for word in words if (path := word.lstrip("-+"))[:1] == "/"}
            elif name in OTHER_ROOTS and value.strip() not in ("", "/"):
                is_other_root = True
        for command in (one for line in lines for one in _COMMANDS.split(line)):
            found = {path for path in paths_in(command) if "bin/" not in path}
            if _MAKES_FOLDER.search(command):
                folders |= found
            elif _MAKES.search(command):
                trees |= found
            trees |= {*OUTPUT.findall(command)}
        return cls(
            folders=frozenset(folders),
            trees=frozenset(trees | mounted),
            mounted=frozenset(mounted),
            is_other_root=is_other_root,
            removed=removed,
        )

    def makes(self, path: str) -> bool:
        """Return whether the path can exist at the start though it does not now."""
        forms = {path, path.replace("/var/run/", "/run/", 1)}
        is_above = any(f"{made}/".startswith(f"{one}/") for one in forms for made in (*self.folders, *self.trees))
        return (
            self.is_other_root
            or is_above
            or any(f"{one}/".startswith(f"{tree}/") for one in forms for tree in self.trees)
        )

    def removed_by(self, *paths: str, by_systemd: bool, has_data: bool) -> str:
        """Return the setting by which a stop removes a path, of which all forms are given, and after which nothing that
        the unit starts makes it again; empty if it stays. `by_systemd`: it uses the path, and not the process.
        `has_data`: it is a log directory, which a start makes again without its data."""
        forms = {path.replace("/var/run/", "/run/", 1) for path in paths}
        kept = any(f"{path}/".startswith(f"{one}/") for path in forms for one in self.mounted)
        if self.is_other_root or kept if has_data else any(self.makes(path) for path in forms):
            return ""
        for folder, setting in self.removed.items():
            is_in_it = any(f"{path}/".startswith(f"{folder}/") and (has_data or path != folder) for path in forms)
            if is_in_it and not (by_systemd and folder in _TMP):  # it sees /tmp of the host
                return setting
        return ""


def bound(path: str) -> str:
    """Return where the process sees a path of BindPaths=, as `source:destination:options`."""
    return f"{path}::".split(":")[1] or path.partition(":")[0]


def is_literal(path: str) -> bool:
    """Return whether a path is the one that the start uses, and not a pattern."""
    return _OPEN.search(path) is None


def absences_of(config: Mapping[str, str], arguments: Sequence[str]) -> Iterator[tuple[str, Absence]]:
    """Yield the paths in the configuration and in options of the next start, with what each does if it is missing.

    Keystores, truststores and the JAAS file have their own check, and so do log directories.
    """
    provided = dict.fromkeys(path for _, path in provider_files(config))
    yield from ((path, Absence.FATAL) for path in provided)
    for word in arguments:
        if word.startswith(_AGENTS):
            agent, _, options = word.partition(":")[2].partition("=")
            yield agent, Absence.FATAL
            for path in filter(_RULES.fullmatch, paths_of_agent(options)):
                is_read = re.search(rf"(?:(?:^|:)\d+:|(?:^|[,;])config=(?:file:)?){re.escape(path)}(?:$|[,;])", options)
                yield path, Absence.FATAL if is_read else Absence.DOUBTFUL
        elif word.startswith("@"):
            yield word[1:], Absence.FATAL
        elif word.startswith(_FLAGS):
            yield word.removeprefix(_FLAGS), Absence.FATAL
        elif _OF_FILE.match(word) and not _LEFT_OUT.match(word):
            yield from ((path, Absence.DOUBTFUL) for path in paths_in(word) if not _WRITTEN.fullmatch(path))
    for path in paths_of_settings(config):
        if path not in provided and "." in path.rpartition("/")[2] and not _WRITTEN.fullmatch(path):
            yield path, Absence.DOUBTFUL
