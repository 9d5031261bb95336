"""The folders of a host in which a run writes, apart from the home folder of the SSH user.

A restart writes in none of them. Another run switches the link, unpacks a release or installs a package, and changes
the configuration where its lines differ from the file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Sequence

from kafka_rollout.model.topology import ServiceSpec
from kafka_rollout.releases.facts import Release


def possible_folders(service: ServiceSpec) -> tuple[str, ...]:
    """Return those of any run. Releases that are on the host already can be on a read-only file system."""
    return _folders(service, switches=True, unpacks=True, configures=True)


def folders_of_run(
    service: ServiceSpec,
    releases: Sequence[Release],
    *,
    restarts: bool,
    installed: Release | None,
    brought: Collection[Release],
    configures: Callable[[], bool],
) -> tuple[str, ...]:
    """Return those of one run. `releases`: of the nodes; without any, the run is not known. `restarts`: it only
    restarts. `installed`, `brought`: as in HostState. `configures`: asks whether the file changes."""
    if restarts:
        return ()
    if not releases:
        return possible_folders(service)
    return _folders(
        service,
        switches=not {*releases} <= {installed},
        unpacks=service.package is not None or bool(brought),
        # The scripts of a package can change the file, so the run keeps a copy next to it.
        configures=service.package is not None or service.managed_elsewhere or configures(),
    )


def _folders(service: ServiceSpec, *, switches: bool, unpacks: bool, configures: bool) -> tuple[str, ...]:
    folders = [posixpath.dirname(service.symlink)] if switches and not service.package else []
    folders += [service.release_parent] if unpacks and (service.package or service.archive) else []
    folders += [posixpath.dirname(service.configuration_file)] if configures and not service.managed_elsewhere else []
    return tuple(dict.fromkeys(folders))
