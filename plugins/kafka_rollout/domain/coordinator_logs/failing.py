"""Partitions that a release fails at, in the words of findings: those that it would not serve, and those that it would.

It would serve those in which it only complains of groups that were deleted while transactions are open (docs/scan.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_rollout.domain.coordinator_logs.scan import LoadVerdict, ReleaseVerdict, ScanResult

TRANSACTIONS_TO_END = (
    "Let the transactions end that commit offsets for these deleted groups (their producers do it, or the coordinator "
    "after transaction.timeout.ms) and scan again; no cleaner is waited for"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Of one release and log; `first` is one that would not be served, if there is any."""

    first: ReleaseVerdict
    partitions: int
    of: int
    served: int

    @classmethod
    def among(cls, scan: ScanResult, verdicts: Sequence[ReleaseVerdict]) -> Failing | None:
        """`verdicts`: of all partitions of the log. None: the release fails at none of them."""
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
        """The first of them, and why."""
        place, failure = f"{self.first.topic}-{self.first.partition}", self.first.first_failure
        return f"{place} fails" if failure is None else f"{place} fails at offset {failure.offset}: {failure.reason}"

    @property
    def sentence(self) -> str:
        release, partitions = self.first.release, f"{self.partitions} of {self.of} partitions"
        if self.all_served:
            return (
                f"{release} would log that it could not load {partitions}, and serve them all the same; {self.where}."
            )
        return f"{release} could not load {partitions}; {self.where}."

    def remedy(self, of_unserved: str) -> str:
        """`of_unserved`: what ends the failures at those that would not be served; no full stop."""
        if self.all_served:
            return TRANSACTIONS_TO_END
        return f"{of_unserved}. {TRANSACTIONS_TO_END}" if self.served else of_unserved
