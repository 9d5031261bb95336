"""The verdict about the test traffic of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_rollout.run.traffic_series import TrafficSample

RESENT = "resent"

TRANSACTIONAL_PRODUCER = "producer-transactional"


class TransactionOutcome(StrEnum):
    """The outcome that the producer received. UNKNOWN: the response to the commit or abort was lost."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """One kind of discrepancy. `kind`: lost, moved, doubled, resent, leaked, torn or unknown.

    `examples`: positions or ids; the host whose journals were not compared.
    """

    kind: str
    consumer: str
    count: int
    examples: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficVerdict:
    """The result of the traffic check. `unavailable_s`: client → longest seconds without an acknowledgement or a
    record.

    `left_out`: clients that never ran, because the run lowers a level that they need. `periods`: number of traffic
    periods. A period ends when the run ends, and a new one starts when the run is resumed.
    """

    acknowledged: int
    transactions: Mapping[str, int]
    consumed: Mapping[str, int]
    redelivered: Mapping[str, int]
    unavailable_s: Mapping[str, float]
    discrepancies: tuple[Discrepancy, ...]
    periods: int = 1
    left_out: tuple[str, ...] = ()
    series: tuple[TrafficSample, ...] = ()

    @property
    def failures(self) -> tuple[Discrepancy, ...]:
        return tuple(found for found in self.discrepancies if found.kind != RESENT)

    @property
    def ok(self) -> bool:
        """Return whether nothing failed and each kind of test traffic produced and consumed records.

        Records that a client sent again are reported, but the cluster stored what it was sent.
        """
        has_transactions = self.transactions[TransactionOutcome.COMMITTED] > 0
        ran = self.acknowledged > 0 and (has_transactions or TRANSACTIONAL_PRODUCER in self.left_out)
        return ran and bool(self.consumed) and all(self.consumed.values()) and not self.failures
