"""The lease that makes one run the only one that changes a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """`cluster` is the inventory's name, `cluster_id` Kafka's ("" while not known); `holder` is the run; `purpose` a
    sentence; times in epoch seconds. `token` rises with each run that takes the lease and never falls."""

    cluster: str
    holder: str
    purpose: str
    acquired_at: float
    expires_at: float
    cluster_id: str = ""
    token: int = 0
