"""The clusters of the inventory and the releases of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.domain.model.cluster.topology import ClusterSpec
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.settings import Settings

if TYPE_CHECKING:
    from kafka_rollout.adapters.kafka.security.client_security import ClientSecurity


def list_clusters(settings: Settings | None = None) -> dict[str, ClusterSpec]:
    """Return all clusters of the inventory folder, by name. Raises UserError if one file cannot be read."""
    from kafka_rollout.adapters.inventory import load_clusters

    return load_clusters((settings or Settings.from_environment()).clusters)


def list_readable_clusters(settings: Settings | None = None) -> tuple[dict[str, ClusterSpec], dict[Path, UserError]]:
    """Return all clusters whose inventory can be read, by name, and the error of every other inventory file."""
    from kafka_rollout.adapters.inventory import readable_clusters

    return readable_clusters((settings or Settings.from_environment()).clusters)


def get_cluster(name: str, settings: Settings | None = None) -> ClusterSpec:
    """Return one cluster of the inventory. Raises UserError if it does not exist or cannot be read."""
    from kafka_rollout.adapters.inventory import find_cluster

    return find_cluster((settings or Settings.from_environment()).clusters, name)


def discover_inventory(
    bootstrap: str, name: str | None, security: ClientSecurity | None, settings: Settings
) -> tuple[Path, ClusterSpec]:
    """Write the inventory of a running cluster to the folder of the inventories. `bootstrap`: `host:port` of a broker.

    `name`: of the cluster; None: one by its id. Raises UserError if the folder has the cluster or the file already.
    """
    from kafka_rollout.adapters.discovery.cluster import discover_cluster
    from kafka_rollout.adapters.discovery.draft import default_name, write_inventory
    from kafka_rollout.adapters.kafka.security.client_security import ClientSecurity

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


def get_catalogue(settings: Settings | None = None) -> Catalogue:
    """Return the facts of every supported release."""
    from kafka_rollout.adapters.releases.catalogue import load_catalogue

    return load_catalogue(*(settings or Settings.from_environment()).catalogue_folders)


def list_releases(settings: Settings | None = None) -> list[str]:
    """Return the names of all supported releases, oldest first. Reads no catalogue file."""
    from kafka_rollout.adapters.releases.catalogue import release_files

    return [str(release) for release in release_files(*(settings or Settings.from_environment()).catalogue_folders)]
