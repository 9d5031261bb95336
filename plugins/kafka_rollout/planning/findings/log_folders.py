"""Folders of log directories that an older release takes for partitions, and does not start with.

A broker sets the replica of a topic that was deleted while it was down aside, as `orders-0.<id>-stray`, and keeps it.
Releases before 3.6.1 refuse the name (LocalLog.parseTopicPartitionName throws): the broker ends while it starts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.outside_text import NAME_LIMIT, escape_invisible
from kafka_rollout.base.wording import few
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

KNOWN_SINCE: Mapping[re.Pattern[str], Release] = {
    re.compile(r".+-stray"): Release(3, 6, 1),
    re.compile(r"remote-log-index-cache"): Release(3, 5, 0),
}
"""Name of a folder → the first release that starts with it."""

NAME_DIRECTORIES = "Write log.dirs into its server.properties as paths."

LOG_FOLDER_REFUSED = FindingCode(
    "LOG-FOLDER-REFUSED",
    BLOCKER,
    "A log directory has a folder with which a broker of an older release does not start.",
)
LOG_FOLDERS_CHECK = Check(
    "log-folders",
    "Folders in the log directories",
    "downgrade.md#findings-of-a-downgrade",
    (LOG_FOLDER_REFUSED,),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE),
    needs=(Need.CONFIGS,),
    examines=Examined.BROKERS,
)


def can_refuse_folders(source: Release, releases: Collection[Release]) -> bool:
    """Return whether nodes of `source` can have folders that one of the other releases refuses."""
    return any(lowest < since <= source for lowest in releases for since in KNOWN_SINCE.values())


def refuses_folder(release: Release, name: str) -> bool:
    """Return whether a broker does not start with a folder of this name in log.dirs, which a later release made."""
    return any(release < since and form.fullmatch(name) for form, since in KNOWN_SINCE.items())


def log_folder_findings(
    node: NodeSpec, folders: Mapping[str, Sequence[str]], releases: Collection[Release]
) -> Iterator[Finding]:
    """Yield a finding for each log directory with such folders. `folders`: directory → names of its folders."""
    lowest = min(releases)
    for directory, names in folders.items():
        refused = sorted(name for name in names if refuses_folder(lowest, name))
        if refused:
            shown = few((escape_invisible(name, limit=NAME_LIMIT) for name in refused), limit=20)
            yield LOG_FOLDER_REFUSED.found(
                f"node {node.node_id}, {directory}",
                f"A broker of Kafka {lowest} does not start with {shown} in {directory} of node {node.name}: it takes "
                "each folder for a partition.",
                f"Move them to a folder outside {directory}, as the user of the broker, which can run: they are "
                "replicas that the cluster has no longer, or a cache.",
            )
