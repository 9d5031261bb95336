"""The clusters of the inventory and the releases of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity


def list_clusters(settings: Settings | None = None) -> dict[str, ClusterSpec]:
    """Return all clusters of the inventory folder, by name. Raises UserError if one file cannot be read."""
    from kafka_rollout.clusters.inventory import load_clusters

    return load_clusters((settings or Settings.from_environment()).clusters)


def list_readable_clusters(settings: Settings | None = None) -> tuple[dict[str, ClusterSpec], dict[Path, UserError]]:
    """Return all clusters whose inventory can be read, by name, and the error of every other inventory file."""
    from kafka_rollout.clusters.inventory import readable_clusters

    return readable_clusters((settings or Settings.from_environment()).clusters)


def get_cluster(name: str, settings: Settings | None = None) -> ClusterSpec:
    """Return one cluster of the inventory. Raises UserError if it does not exist or cannot be read."""
    from kafka_rollout.clusters.inventory import find_cluster

    return find_cluster((settings or Settings.from_environment()).clusters, name)


def discover_inventory(
    bootstrap: str, name: str | None, security: ClientSecurity | None, settings: Settings
) -> tuple[Path, ClusterSpec]:
    """Write the inventory of a running cluster to the folder of the inventories. `bootstrap`: `host:port` of a broker.

    `name`: of the cluster; None: one by its id. Raises UserError if the folder has the cluster or the file already.
    """
    from kafka_rollout.clusters.discovery.cluster import discover_cluster
    from kafka_rollout.clusters.discovery.draft import default_name, write_inventory
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity

    existing, _ = list_readable_clusters(settings)
    if name is not None:
        _refuse_existing(name, existing)
    found = discover_cluster(bootstrap, security or ClientSecurity())
    name = name or default_name(found.cluster_id)
    _refuse_existing(name, existing)
    return write_inventory(
        found, name, settings.clusters, get_catalogue(settings), bootstrap=bootstrap, secured=security is not None
    )


def _refuse_existing(name: str, existing: Mapping[str, ClusterSpec]) -> None:
    if name in existing:
        raise UserError(f"The inventory has a cluster {name} already.", remedy="Choose another name with --name.")


def list_sudoers_files(
    cluster: ClusterSpec, login: str, log_dirs: Sequence[str], metadata_log_dir: str | None = None
) -> dict[str, list[str]]:
    """Return each different sudoers file that the hosts of a cluster need → these hosts. Contacts no host.

    `login`: the SSH user. `log_dirs`: log.dirs of the nodes. `metadata_log_dir`: default: the first of `log_dirs`, as
    in Kafka (KafkaConfig.metadataLogDir). Raises UserError for a cluster without hosts, a path or a user name that a
    sudoers file cannot have.
    """
    from pydantic import TypeAdapter, ValidationError

    from kafka_rollout.clusters.host_entries import HostPath, User
    from kafka_rollout.nodes.runtimes.hosts.rights import sudoers_files

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


def get_catalogue(settings: Settings | None = None) -> Catalogue:
    """Return the facts of every supported release."""
    from kafka_rollout.releases.documents.catalogue import load_catalogue

    return load_catalogue(*(settings or Settings.from_environment()).catalogue_folders)


def list_releases(settings: Settings | None = None) -> list[str]:
    """Return the names of all supported releases, oldest first. Reads no catalogue file."""
    from kafka_rollout.releases.documents.catalogue import release_files

    return [str(release) for release in release_files(*(settings or Settings.from_environment()).catalogue_folders)]
