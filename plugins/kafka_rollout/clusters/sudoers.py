"""The sudoers files that the hosts of a cluster need."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import TypeAdapter, ValidationError

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.host_paths import one_spelling
from kafka_rollout.clusters.entries import AbsolutePath, User
from kafka_rollout.model.log_directories import log_directories, metadata_directory
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.rights import NodeDirectories, sudoers_files


def refuse_without_hosts(cluster: ClusterSpec) -> None:
    """Raise UserError for a cluster without hosts."""
    if cluster.runtime != "ssh_service":
        raise UserError(
            f"Cluster {cluster.name} has the runtime {cluster.runtime}, which uses no sudo.",
            remedy="Call the command for a cluster with the runtime ssh_service.",
        )


def directories_of(config: Mapping[str, str]) -> NodeDirectories | None:
    """Return the directories of a node with this configuration; None if a config provider has them, or without any."""
    metadata, log_dirs = metadata_directory(config), log_directories(config)
    return NodeDirectories(metadata=metadata, log_dirs=log_dirs) if metadata and log_dirs else None


def same_directories(
    cluster: ClusterSpec, log_dirs: Collection[str], metadata_log_dir: str | None
) -> dict[int, NodeDirectories]:
    """Return the same directories for each node. `metadata_log_dir`: default: the first of `log_dirs`, as in Kafka
    (KafkaConfig.metadataLogDir)."""
    paths = tuple(map(one_spelling, log_dirs))
    found = NodeDirectories(metadata=one_spelling(metadata_log_dir or paths[0]), log_dirs=paths)
    return {node.node_id: found for node in cluster.nodes}


def list_sudoers_files(
    cluster: ClusterSpec, login: str, directories: Mapping[int, NodeDirectories]
) -> dict[str, list[str]]:
    """Return each different sudoers file that the hosts of a cluster need → these hosts.

    `login`: the SSH user. `directories`: by node id. Raises UserError for a cluster without hosts, a path or a user
    name that a sudoers file cannot have.
    """
    refuse_without_hosts(cluster)
    try:
        TypeAdapter(User).validate_python(login)
    except ValidationError:
        raise UserError(
            f"{login!r} is not the name of a user.", remedy="Set --user to the SSH user of the hosts."
        ) from None
    paths = dict.fromkeys(path for own in directories.values() for path in (*own.log_dirs, own.metadata))
    try:
        TypeAdapter(list[AbsolutePath]).validate_python(list(paths))
    except ValidationError as error:
        wrong = error.errors()[0]["input"]
        raise UserError(
            f"{wrong!r} is not an absolute path of letters, digits and . _ @ + - only.",
            remedy="Set the directories as the nodes' configuration has them.",
        ) from None
    return sudoers_files(login, cluster.nodes, directories)
