"""The nonces of claims that a database knows: those of its own runs, and those that approvers have taken over."""

from __future__ import annotations

import json

from sqlalchemy import select

from kafka_rollout.run.store.database import Database
from kafka_rollout.run.store.tables import lease_log

CLAIMED, TAKEN_OVER = "claimed", "claims taken over"
"""Entries of the log of the lock that have `nonces`."""


def read_known_claims(database: Database) -> frozenset[str]:
    """Return all of them, of every cluster: one can have two names."""
    rows = database.read(select(lease_log.c.body).where(lease_log.c.what.in_([CLAIMED, TAKEN_OVER])))
    return frozenset(nonce for row in rows for nonce in json.loads(row.body)["nonces"])
