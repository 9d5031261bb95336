"""The files and folders that a node's next start reads: those that its configuration and its command line name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest

from kafka_rollout.model.configs import provider_files
from kafka_rollout.model.host_state import StartFileKind
from kafka_rollout.model.log_directories import log_directories
from kafka_rollout.model.starts import MAIN_CLASS, named_files

_ARGUMENTS = {
    "-Djava.security.properties=": StartFileKind.JVM,
    "-Dlog4j.configuration=": StartFileKind.LOGGING,
    "-Dlog4j2.configurationFile=": StartFileKind.LOGGING,
    "-Dlog4j.configurationFile=": StartFileKind.LOGGING,
}
_AGENTS = ("-javaagent:", "-agentpath:")
_CLASSPATH = frozenset({"-cp", "-classpath", "--class-path"})
# What a JVM writes, and no start reads (hosts/start_writes.py).
_WRITTEN = re.compile(
    r"-Xlog|-XX:(HeapDumpPath|ErrorFile|LogFile)=|-XX:[+-]|-D[\w.]*log(s|ging)?[._-]?(dir|directory|folder|path)=",
    re.IGNORECASE,
)
_OF_SCRIPT = "bin/../"
"""In paths that the start script makes from its own place, on each release again (`base_dir` of kafka-run-class.sh)."""
_URL = re.compile(r"\b(?!file:)[a-z][a-z0-9+.-]+://\S*|\bclasspath\*?:[^\s,;]*", re.IGNORECASE)
_PATH = re.compile(r"(?:^|[=:,;\"'\s(])(?:file:)?(?://(?=/))?(/[^/\s,;:=\"'*)(}][^\s,;:=\"'*)(}]*)")
_SECRET = re.compile(r"password|secret|credential|jaas|token|license|user\.info|\.key$", re.IGNORECASE)
_OF_FILE = re.compile(r"(file|path|location|store)$", re.IGNORECASE)  # `…jmxremote.password.file` names a file
_REFERENCE = re.compile(r"\$\{[^:}]+:(/[^:}]+)")
_KEY_TAB = re.compile(r"keyTab\s*=\s*[\"']?(/[^\"';\s]+)")
# A file among the options of an agent, below the folder in which the unit starts.
_RELATIVE = re.compile(r"(?:^|[=:,])([\w.-][\w./-]*\.(?:ya?ml|xml|properties|conf|json))(?=[,;]|$)")


def all_start_files(config: Mapping[str, str], arguments: Sequence[str]) -> Iterator[tuple[StartFileKind, str]]:
    """Yield kind and path of the files. `arguments`: of the process. A path that a config provider has is left out.

    The classpath is given as its entries: jars, and folders of jars (`/opt/plugins/*`) without the star.
    """
    for path in named_files(config, arguments).values():
        yield StartFileKind.KEYS, path
    for _, path in provider_files(config):
        yield StartFileKind.PROVIDED, path
    for directory in log_directories(config):
        yield StartFileKind.IDENTITY, f"{directory}/meta.properties"
    for argument in arguments:
        for prefix, kind in _ARGUMENTS.items():
            if argument.startswith(prefix):
                yield kind, argument.removeprefix(prefix).removeprefix("file://").removeprefix("file:")
        for prefix in _AGENTS:
            if argument.startswith(prefix):
                agent, _, options = argument.removeprefix(prefix).partition("=")
                yield StartFileKind.AGENT, agent
                yield from ((StartFileKind.JVM, path) for path in paths_of_agent(options))
        if argument.startswith("@") and len(argument) > 1:  # a file with more arguments of java
            yield StartFileKind.JVM, argument[1:]
    for option, value in pairwise(arguments):
        if option in _CLASSPATH:
            entries = (entry.removesuffix("*").rstrip("/") for entry in value.split(":"))
            yield from ((StartFileKind.JAR, entry) for entry in entries if entry)


def all_start_paths(
    config: Mapping[str, str], process: Sequence[str], environment: Sequence[str]
) -> Iterator[tuple[StartFileKind, str, bool]]:
    """Yield kind and path of everything that a start reads, and whether it is in the unit's environment.

    In addition to `all_start_files`: Kafka's own argument, and every absolute path in another option or setting, apart
    from what a JVM writes and from secrets. The start script's own class path is given as its folder.
    """
    own = _without_class_path_of_script(process)
    for arguments, is_of_unit in ((environment, True), (own, False)):
        for kind, path in all_start_files(config, arguments):
            yield kind, path.removesuffix("/meta.properties") if kind is StartFileKind.IDENTITY else path, is_of_unit
    for option, value in pairwise(process):
        for entry in value.split(":") if option in _CLASSPATH and _OF_SCRIPT in value else ():
            is_own = f"{_OF_SCRIPT}libs/" in entry
            path = entry.rpartition("/")[0] if is_own else entry.removesuffix("*").rstrip("/")
            yield StartFileKind.LIBRARIES if is_own else StartFileKind.JAR, path, False
    end = process.index(MAIN_CLASS) if MAIN_CLASS in process else len(process)
    yield from ((StartFileKind.CONFIGURATION, path, False) for path in process[end + 1 : end + 2])
    yield from ((StartFileKind.PROGRAM, path, False) for path in process[:1] if path.startswith("/"))
    for arguments, is_of_unit in (
        (environment, True),
        (own[: own.index(MAIN_CLASS)] if end < len(process) else own, False),
    ):
        options = (one for one in arguments if not _WRITTEN.match(one) and not _has_secret(one))
        yield from ((StartFileKind.JVM, path, is_of_unit) for one in options for path in paths_in(one))
    yield from ((StartFileKind.NAMED, path, False) for path in paths_of_settings(config))


def _without_class_path_of_script(process: Sequence[str]) -> list[str]:
    """Return the words of a process without those that the start script makes from its own place, and without the
    option of such a class path: the word after it is no class path."""
    return [
        word
        for word, value in zip_longest(process, process[1:], fillvalue="")
        if _OF_SCRIPT not in word and not (word in _CLASSPATH and _OF_SCRIPT in value)
    ]


def paths_of_agent(options: str) -> list[str]:
    """Return what the options of a Java agent name; also relative paths."""
    return [*paths_in(f"={options}"), *_RELATIVE.findall(options)]


def paths_in(text: str) -> list[str]:
    """Return the absolute paths in an option or a value, also of a URL `file:`, but not of another one, or of a file in
    a jar (`classpath:/jolokia-access.xml`)."""
    return [path.rstrip("/") for path in _PATH.findall(_URL.sub("", text))]


def _has_secret(option: str) -> bool:
    """Return whether the value of an option is a secret, by its name alone: a path can contain any word."""
    name, equals, _ = option.partition("=")
    return bool(equals) and _is_secret(name)


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and _OF_FILE.search(name) is None


def paths_of_settings(config: Mapping[str, str]) -> Iterable[str]:
    """The files of config providers, key tabs, and the paths in values that are no secrets."""
    directories = set(log_directories(config))
    for key, value in config.items():
        yield from _REFERENCE.findall(value)
        if key.endswith("jaas.config"):
            yield from _KEY_TAB.findall(value)
        if not _is_secret(key) and key not in ("log.dirs", "log.dir", "metadata.log.dir"):
            yield from (path for path in paths_in(_REFERENCE.sub("", value)) if path not in directories)
