"""The clusters of the inventory and the releases of the catalogue."""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Catalogue
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings


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


def get_catalogue(settings: Settings | None = None) -> Catalogue:
    """Return the facts of every supported release."""
    from kafka_rollout.adapters.releases.catalogue import load_catalogue

    return load_catalogue(*(settings or Settings.from_environment()).catalogue_folders)


def list_releases(settings: Settings | None = None) -> list[str]:
    """Return the names of all supported releases, oldest first. Reads no catalogue file."""
    from kafka_rollout.adapters.releases.catalogue import release_files

    return [str(release) for release in release_files(*(settings or Settings.from_environment()).catalogue_folders)]
