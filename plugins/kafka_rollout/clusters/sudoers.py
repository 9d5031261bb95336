"""The sudoers files that the hosts of a cluster need."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from kafka_rollout.base.errors import UserError
from kafka_rollout.clusters.host_entries import HostPath, User
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.rights import sudoers_files


def list_sudoers_files(
    cluster: ClusterSpec, login: str, log_dirs: Sequence[str], metadata_log_dir: str | None = None
) -> dict[str, list[str]]:
    """Return each different sudoers file that the hosts of a cluster need → these hosts. Contacts no host.

    `login`: the SSH user. `log_dirs`: log.dirs of the nodes. `metadata_log_dir`: default: the first of `log_dirs`, as
    in Kafka (KafkaConfig.metadataLogDir). Raises UserError for a cluster without hosts, a path or a user name that a
    sudoers file cannot have.
    """
    if cluster.runtime != "ssh_service":
        raise UserError(
            f"Cluster {cluster.name} has the runtime {cluster.runtime}, which uses no sudo.",
            remedy="Call the command for a cluster with the runtime ssh_service.",
        )
    try:
        TypeAdapter(User).validate_python(login)
    except ValidationError:
        raise UserError(
            f"{login!r} is not the name of a user.", remedy="Set --user to the SSH user of the hosts."
        ) from None
    metadata = log_dirs[0] if metadata_log_dir is None else metadata_log_dir
    try:
        TypeAdapter(list[HostPath]).validate_python([*log_dirs, metadata])
    except ValidationError as error:
        wrong = error.errors()[0]["input"]
        raise UserError(
            f"{wrong!r} is not an absolute path of letters, digits and . _ @ + - only.",
            remedy="Set the directories as the nodes' configuration has them.",
        ) from None
    return sudoers_files(login, cluster.nodes, log_dirs, metadata)
