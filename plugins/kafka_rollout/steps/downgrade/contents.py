"""The contents of the cluster before and after a downgrade, and their comparison."""

from __future__ import annotations

from kafka_rollout.base.errors import FatalError
from kafka_rollout.model.contents import (
    PARTS,
    ClusterInventory,
    Difference,
    compare_inventories,
    find_unserved_types,
)
from kafka_rollout.run.projections.runs import has_acted
from kafka_rollout.run.step_events import ContentsCompared, ContentsTaken
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.features.sending import levels_now

BEFORE = "inventory/before.json"
COMPARED = "inventory/compared.json"


def take_inventory(ports: ClusterPorts) -> ClusterInventory:
    """Store the contents in the run history.

    After the first change of the run, the first inventory stays as the base.
    """
    kept: ClusterInventory | None = ports.run.attachment(BEFORE, ClusterInventory)
    if kept is not None and has_acted(ports.run.events()):
        return kept
    found = ports.admin.inventory()
    ports.run.attach(BEFORE, found)
    ports.run.record(ContentsTaken(counts=found.counts))
    return found


def compare_inventory(ports: ClusterPorts) -> tuple[Difference, ...]:
    """Return and record every difference. Raises FatalError if the run has no inventory from before."""
    before: ClusterInventory | None = ports.run.attachment(BEFORE, ClusterInventory)
    if before is None:
        raise FatalError("This run has no inventory from before its first change.", remedy="No comparison is possible.")
    after = ports.admin.inventory(configured_groups=before.group_configs)
    found = compare_inventories(before, after, unserved=find_unserved_types(levels_now(ports).finalized))
    ports.run.attach(
        COMPARED,
        {
            "before": before.counts,
            "after": after.counts,
            "unasked": {PARTS.get(part, part): why for part, why in after.unasked.items()},
            "differences": found,
        },
    )
    ports.run.record(ContentsCompared(counts=after.counts, differences=len(found)))
    return found
