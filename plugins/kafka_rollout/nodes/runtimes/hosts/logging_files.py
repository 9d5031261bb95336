"""The default logging configurations of releases on a host: the files in `config` that their start scripts name."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_rollout.model.logging_files import LoggingFile, LoggingFiles
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.text_files import TextFile, TextFiles
from kafka_rollout.releases.facts import Release

_OPTIONS = ("-Dlog4j.configuration=", "-Dlog4j2.configurationFile=", "-Dlog4j.configurationFile=")
_OF_SCRIPT = "/bin/../config/"
_FIRST_WITH_LOG4J2 = Release(4, 0, 0)


def read_logging_files(
    commands: HostCommands, node: NodeSpec, releases: Sequence[Release | None], process: Sequence[str]
) -> dict[Release | None, LoggingFiles]:
    """Return the files of the running release and of each release; none if the process reads a file of the operator,
    or one that the SSH user cannot read. `process`: its command line."""
    service = service_of(node)
    values = (word.removeprefix(option) for word in process for option in _OPTIONS if word.startswith(option))
    path = next((value.removeprefix("file:") for value in values if _OF_SCRIPT in value), "")
    if service.package is not None or not path.startswith("/"):
        return {}
    named = {
        release: f"{service.folder(release)}/config/"
        + ("log4j2.yaml" if release >= _FIRST_WITH_LOG4J2 else "log4j.properties")
        for release in releases
        if release is not None
    }
    files = TextFiles(commands, node)
    files.read([path, *named.values()])
    now = files.texts.get(path)
    if now is None:
        return {}
    found: dict[Release | None, LoggingFiles] = {}
    for release in releases:
        if release is None or named[release] not in files.unread:
            then = None if release is None else files.texts.get(named[release])
            found[release] = LoggingFiles(now=_file(now), then=None if then is None else _file(then))
    return found


def _file(text: TextFile) -> LoggingFile:
    return LoggingFile(path=text.path, lines=text.lines)
