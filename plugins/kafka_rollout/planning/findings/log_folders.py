"""Names in the log directories of a node with which a release does not start.

Kafka reads them only when it starts, and the release that runs can refuse what was put there since. Sources:
LogManager.loadLogs (brokers: each folder is a partition, each partition has one folder), LogLoader and
KafkaMetadataLog (files of each log), KafkaRaftServer (the metadata log is in metadata.log.dir alone).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from kafka_rollout.base.findings import BLOCKER, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.internal_topics import METADATA_LOG, METADATA_TOPIC
from kafka_rollout.base.outside_text import NAME_LIMIT, escape_invisible
from kafka_rollout.base.wording import few
from kafka_rollout.formats.log_files import CACHE, CACHE_SINCE, parse_folder
from kafka_rollout.model.log_directories import LogDirectory, data_directories, metadata_directory
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

NAME_DIRECTORIES = "Write log.dirs into its server.properties as paths."

LOG_FOLDER_REFUSED = FindingCode(
    "LOG-FOLDER-REFUSED",
    BLOCKER,
    "A log directory has a folder or a file with which a node does not start.",
)
LOG_FOLDERS_CHECK = Check(
    "log-folders",
    "Names in the log directories",
    "downgrade.md#findings-of-a-downgrade",
    (LOG_FOLDER_REFUSED,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.CONFIGS,),
    examines=Examined.NODES,
)


def log_folder_findings(
    node: NodeSpec,
    config: Mapping[str, str],
    directories: Mapping[str, LogDirectory],
    releases: Collection[Release],
) -> Iterator[Finding]:
    """Yield what prevents a start on one of the releases. `directories`: each of `log_directories(config)`."""
    lowest, metadata = min(releases), metadata_directory(config)
    data = {path: directories[path] for path in data_directories(config)}

    def refused(directory: str, names: Collection[str], why: str, remedy: str) -> Iterator[Finding]:
        if names:
            shown = few((escape_invisible(name, limit=NAME_LIMIT) for name in sorted(names)), limit=20)
            yield LOG_FOLDER_REFUSED.found(
                f"node {node.node_id}, {directory}",
                f"Kafka {lowest} does not start with {shown} in {directory} of node {node.name}: {why}.",
                remedy,
            )

    move = "Move them to a folder outside {}, as the user of the node, which can run: it does not use them."
    for directory, found in directories.items():
        outside = move.format(directory)
        loaded = {METADATA_LOG} if directory == metadata else set[str]()
        if node.is_broker and directory in data:
            parsed = {name: parse_folder(name, lowest) for name in found.folders if not _is_cache(name, lowest)}
            loaded |= {name for name, of in parsed.items() if of and of[0] != METADATA_TOPIC}
            strange = [name for name, of in parsed.items() if of is None]
            yield from refused(directory, strange, "a broker takes each folder for a partition", outside)
        if METADATA_LOG in found.folders and directory != metadata:
            yield from refused(directory, [METADATA_LOG], f"the metadata log is in {metadata}", outside)
        files = [name for name in found.refused if name.partition("/")[0] in loaded]
        yield from refused(directory, files, "such a file must have an offset as its name", outside)
        closed = [name for name in found.unreadable if name.partition("/")[0] in loaded]
        rights = f"Move files of others out of {directory}, and give those of Kafka to the user of the node."
        yield from refused(directory, closed, "the user of the node cannot read them", rights)
    twice = {key: places for key, places in _places(data, lowest).items() if len(places) > 1}
    if node.is_broker and twice:
        shown = few((escape_invisible(" and ".join(places)) for places in twice.values()), limit=20)
        yield LOG_FOLDER_REFUSED.found(
            f"node {node.node_id}",
            f"Kafka {lowest} does not start on node {node.name}: two folders are of one partition: {shown}.",
            "Find the folder that the broker uses with kafka-log-dirs.sh --describe. Move the other one out of its "
            "log.dirs, as the user of the broker, which can run.",
        )


def _places(directories: Mapping[str, LogDirectory], release: Release) -> Mapping[object, list[str]]:
    """Return partition, and whether the folder is of a future replica → paths of its folders."""
    found = defaultdict[object, list[str]](list)
    for directory, names in directories.items():
        for name in sorted(names.folders):
            partition = parse_folder(name, release)
            if partition and partition[0] != METADATA_TOPIC and not name.endswith(("-delete", "-stray")):
                found[partition, name.endswith("-future")].append(f"{directory}/{name}")
    return found


def _is_cache(name: str, release: Release) -> bool:
    return name == CACHE and release >= CACHE_SINCE
