"""The files that a node's next start reads: those that its configuration and the arguments of its JVM name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kafka_rollout.formats.files.server_properties import log_directories
from kafka_rollout.model.host_state import StartFileKind
from kafka_rollout.model.starts import named_files

_ARGUMENTS = {
    "-Djava.security.properties=": StartFileKind.JVM,
    "-Dlog4j.configuration=": StartFileKind.LOGGING,
    "-Dlog4j2.configurationFile=": StartFileKind.LOGGING,
    "-Dlog4j.configurationFile=": StartFileKind.LOGGING,
}
_CLASSPATH = frozenset({"-cp", "-classpath", "--class-path"})


def all_start_files(config: Mapping[str, str], arguments: Sequence[str]) -> Iterator[tuple[StartFileKind, str]]:
    """Yield kind and path of the files. `arguments`: of the process. A path of a config provider is left out.

    The classpath is given as its entries: jars, and folders of jars (`/opt/plugins/*`) without the star.
    """
    for path in named_files(config, arguments).values():
        yield StartFileKind.KEYS, path
    for directory in log_directories(config):
        yield StartFileKind.IDENTITY, f"{directory.rstrip('/')}/meta.properties"
    for argument in arguments:
        for prefix, kind in _ARGUMENTS.items():
            if argument.startswith(prefix):
                yield kind, argument.removeprefix(prefix).removeprefix("file://").removeprefix("file:")
    for option, value in pairwise(arguments):
        if option in _CLASSPATH:
            entries = (entry.removesuffix("*").rstrip("/") for entry in value.split(":"))
            yield from ((StartFileKind.JAR, entry) for entry in entries if entry)
