"""The group coordinator that the brokers start on the releases ahead, from the files of their next start.

3.8 and 3.9 have two. What the running brokers report is about the release that they run now.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_rollout.base.errors import NotObservableError
from kafka_rollout.model.plan import overridden_lines
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ReadPorts, at_once
from kafka_rollout.releases.facts import Release, enables_new_group_coordinator


def planned_group_coordinator(ports: ReadPorts, releases: Iterable[Release]) -> bool | None:
    """Return whether a broker starts the new group coordinator on one of these releases, in their order.

    None: none of them has two, or the file of a broker is not observable; the running brokers are asked then. Raises
    TransientError if a host does not respond.
    """
    starts = [
        lines
        for release, lines in overridden_lines(ports.cluster, releases).items()
        if ports.catalogue.get(release).has_two_group_coordinators
    ]
    if not starts:
        return None

    def read(node: NodeSpec) -> dict[str, str] | None:
        try:
            return dict(ports.runtime.config(node))
        except NotObservableError:
            return None

    files = list(at_once(read, ports.cluster.brokers))
    if any(enables_new_group_coordinator({**(file or {}), **lines}) for file in files for lines in starts):
        return True
    return None if None in files else False
