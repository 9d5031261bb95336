"""What the test traffic of a run shows so far: before differences are accepted, and before what cannot be undone.

Requested traffic without a result proves nothing. An approver accepts each sentence by name, with the differences after
the roll, or in the text of the approval that follows.
"""

from __future__ import annotations

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.base.wording import few
from kafka_rollout.control.approval import accepted_doubts
from kafka_rollout.observation.run import Run
from kafka_rollout.preparation.state_comparison import accepted_differences, record_traffic_so_far


def accepted_of_traffic(run: Run) -> frozenset[str]:
    """Return the sentences that an approver accepted, in a text or as differences after the roll."""
    return frozenset((*accepted_doubts(run), *accepted_differences(run)))


def refuse_unproved_traffic(run: Run) -> None:
    """Compare the test traffic so far. Raise RefusedError if it shows what no approver accepted."""
    unproved = record_traffic_so_far(run)
    accepted = accepted_of_traffic(run) if unproved else ()
    if left := [one for one in unproved if one not in accepted]:
        raise RefusedError(
            few(left),
            remedy="Read the journals of the test traffic. If a started broker acknowledged nothing, it "
            "refuses the clients, or leads no partition of the topics: elect the preferred leaders, and repeat the "
            "step. To go on, ask for the approval again: its text lists this. In a DAG, clear its task with all "
            "downstream tasks, and answer on the page *Kafka rollout*.",
        )
