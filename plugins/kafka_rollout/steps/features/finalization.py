"""What the run's record says about finalizing: when it was asked for, and from which offset on it is in the log."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_rollout.domain.model.releases import METADATA_VERSION
from kafka_rollout.steps.common.cluster_ports import ClusterPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalization:
    """`asked_at` in epoch seconds, just before the update was sent. Epochs of the finalized features are offsets of
    the metadata log (KRaft): `epoch_before` the highest seen before it, `epoch_after` one whose image carries it."""

    asked_at: float
    epoch_before: int | None
    epoch_after: int | None


def finalization(ports: ClusterPorts) -> Finalization | None:
    """Of metadata.version if this run changed it, else of the first feature that it changed; None: of none."""
    asked: dict[str, Finalization] = {}
    for event in ports.run.events():
        if event.get("kind") not in {"finalizing", "finalized"}:
            continue
        for feature in event["levels"]:
            if event["kind"] == "finalizing":
                asked[feature] = Finalization(
                    asked_at=float(event["at"]), epoch_before=event["epoch_before"], epoch_after=None
                )
            elif feature in asked:
                before = asked[feature]
                asked[feature] = Finalization(
                    asked_at=before.asked_at, epoch_before=before.epoch_before, epoch_after=event["epoch_after"]
                )
    return asked.get(METADATA_VERSION) or next(iter(asked.values()), None)
