"""Partitions that a release fails to load: those that it would not serve, and those that it would still serve.

It still serves a partition if its only load errors are about groups that were deleted during an open transaction
(docs/scan.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult

TRANSACTIONS_TO_END = (
    "End the transactions that commit offsets for these deleted groups. Their producers do this, or the "
    "coordinator after transaction.timeout.ms. Then scan again. You do not need to wait for the log cleaner"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """The failing partitions of one release and log. `first`: one that would not be served, if there is one."""

    first: ReleaseVerdict
    partitions: int
    of: int
    served: int

    @classmethod
    def among(cls, scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> Failing | None:
        """Return the failing partitions, or None if there are none. `verdicts`: of all partitions of the log."""
        failing = [verdict for verdict in verdicts if verdict.verdict is LoadVerdict.FAILS]
        if not failing:
            return None
        unserved = [verdict for verdict in failing if not scan.is_served(verdict)]
        return cls(
            first=(unserved or failing)[0],
            partitions=len(failing),
            of=len(verdicts),
            served=len(failing) - len(unserved),
        )

    @property
    def all_served(self) -> bool:
        return self.served == self.partitions

    @property
    def where(self) -> str:
        """The first failing partition, with offset and reason."""
        place, failure = f"{self.first.topic}-{self.first.partition}", self.first.first_failure
        return f"{place} fails" if failure is None else f"{place} fails at offset {failure.offset}: {failure.reason}"

    @property
    def sentence(self) -> str:
        release, partitions = self.first.release, f"{self.partitions} of {self.of} partitions"
        if self.all_served:
            return f"{release} would log a load error for {partitions}, but would serve these partitions; {self.where}."
        return f"{release} cannot load {partitions}; {self.where}."

    def remedy(self, of_unserved: str) -> str:
        """Return the remedy. `of_unserved`: remedy for partitions that would not be served, without a full stop."""
        if self.all_served:
            return TRANSACTIONS_TO_END
        return f"{of_unserved}. {TRANSACTIONS_TO_END}" if self.served else of_unserved
