"""The record of a campaign can be read again, and its summary counts."""

from __future__ import annotations

from pathlib import Path

from tools.faults.records import CampaignLine, FailureLine, FaultLine, Record, RunLine, read_lines
from tools.faults.summary import summary

CAMPAIGN = CampaignLine(
    at=1.0, seed=7, runtime="local", commit="abc", density=0.8, kinds=("kill-node",), left_out="no root"
)


def fault(place: str, *, reached: bool = True, lasted: float = 2.0) -> FaultLine:
    return FaultLine(
        at=2.0,
        place=place,
        kind="kill-node",
        target="broker-1",
        moment="stopping 1",
        delay_s=0.5,
        step="stopping 1 (node 1)",
        lasted_s=lasted,
        reached=reached,
        outcome="killed",
    )


def run(place: str, acknowledged: int, *, lost: int = 0, outcome: str = "completed") -> RunLine:
    return RunLine(
        at=3.0,
        place=place,
        layout="separate",
        procedure="upgrade",
        releases="4.2.1 and 4.3.1",
        run_id="a-run",
        outcome=outcome,
        seconds=60.0,
        calls=2,
        faults=1,
        acknowledged=acknowledged,
        lost=lost,
        doubled=0,
        waited_s=4.5,
    )


FAILURE = FailureLine(at=4.0, place="2.1", what="stuck", sentence="It stays.", repeat="make faults SEED=7")


def test_the_lines_of_a_record_are_read_as_they_were_written(tmp_path: Path) -> None:
    record = Record(tmp_path / "results" / "one.jsonl")
    lines = [CAMPAIGN, fault("1.1"), run("1.1", 10), FAILURE]
    for line in lines:
        record.add(line)
    with record.path.open("a") as file:
        file.write('{"line": "fault", "at"')  # killed while it wrote
    assert list(read_lines([record.path])) == lines
    assert record.of(FaultLine, "1.1") == [fault("1.1")]


def test_the_summary_counts_faults_runs_and_records_of_every_round_once() -> None:
    text = summary(
        [
            CAMPAIGN,
            fault("1.1"),
            fault("1.1", reached=False),
            run("1.1", 100),
            run("1.2", 150),
            fault("2.1", lasted=6.0),
            run("2.1", 1000, outcome="failed"),
            FAILURE,
        ]
    )
    assert "2 faults in 3 runs; 1 failures. 1 planned faults were not injected." in text
    assert "| kill-node: SIGKILL for a node | 2 | 1 | 6.0 |" in text
    assert "| upgrade | 3 | 2 | 0 | 1 | 6 | 3 |" in text
    assert "1,150 acknowledged, 0 lost, 0 doubled" in text, "records count from the start of a round"
    assert "- **stuck** in 2.1: It stays." in text
    assert "Repeat: `make faults SEED=7`" in text
    assert "left out: no root" in text


def test_the_same_round_of_two_campaigns_counts_twice() -> None:
    text = summary([CAMPAIGN, run("1.1", 100), CAMPAIGN, run("1.1", 100)])
    assert "200 acknowledged" in text
