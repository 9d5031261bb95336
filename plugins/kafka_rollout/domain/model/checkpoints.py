"""Snapshots of the metadata log: the file on a node, and its loaded contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """A snapshot of the metadata log on a node: `end_offset`/`epoch` from its name, `modified_at` in epoch seconds."""

    node_id: int
    path: str
    end_offset: int
    epoch: int
    size: int
    modified_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """A snapshot as loaded by a release's own classes; redacted: counts and levels, no credentials."""

    release: str
    features: Mapping[str, int]
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    topics: int
    partitions: int
    records: int
    sha256: str
