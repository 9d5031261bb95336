"""What a scan reports while its tasks run, and when it gives up."""

from __future__ import annotations

from kafka_rollout_spark.progress import Tasks


def tasks(**options: object) -> Tasks:
    values: dict[str, object] = {"splits": 4, "total": 2_000_000_000, "unit": "bytes", "began": 0.0, **options}
    return Tasks(**values)  # type: ignore[arg-type]


def test_the_rate_begins_with_the_first_task_and_not_with_the_start_of_executors() -> None:
    seen = tasks()
    assert seen.line(0.0, reads=True) == "read 0 of 4 splits, 0 kB of 2.00 GB, 0 s"
    assert seen.see(20.0, running=0, finished=0) == ""
    assert seen.see(21.0, running=2, finished=0) == ""
    assert seen.line(21.0, reads=True) == "", "nothing new"
    assert seen.see(22.0, running=2, finished=1) == ""
    assert seen.line(22.0, reads=True) == (
        "read 1 of 4 splits, about 500 MB of 2.00 GB, 500 MB/s, 22 s, about 3 s left"
    )


def test_the_same_state_is_said_again_twice_a_minute() -> None:
    seen = tasks(total=4_000, unit="offsets")
    said = []
    for second in range(61):
        seen.see(float(second), running=1, finished=0)
        said.append(seen.line(float(second), reads=True))
    assert [line for line in said if line] == [
        f"read 0 of 4 splits, 0 offsets of 4,000 offsets, {second} s" for second in (0, 30, 60)
    ]
    assert seen.line(61.0, reads=False) == "merging the results"
    assert seen.line(200.0, reads=False) == ""


def test_a_scan_without_an_executor_says_so_and_gives_up() -> None:
    seen = tasks(start_limit_s=90.0)
    seen.line(0.0, reads=True)
    assert seen.see(31.0, running=0, finished=0) == ""
    assert seen.line(31.0, reads=True) == "no executor has taken a task for 31 s; waiting 90 s"
    assert seen.see(89.0, running=0, finished=0) == ""
    assert seen.see(90.0, running=0, finished=0) == "No executor has taken a task for 90 s"


def test_executors_that_are_gone_are_waited_for_as_long_as_at_the_start() -> None:
    seen = tasks(start_limit_s=90.0)
    seen.see(10.0, running=2, finished=0)
    seen.see(50.0, running=0, finished=2)
    assert seen.see(139.0, running=0, finished=2) == ""
    assert seen.see(140.0, running=0, finished=2) == "No executor has taken a task for 90 s"


def test_a_task_that_never_finishes_ends_the_scan_and_work_of_the_driver_does_not() -> None:
    seen = tasks(task_limit_s=600.0)
    seen.see(1.0, running=1, finished=0)
    assert seen.see(599.0, running=1, finished=0) == ""
    seen.works(599.5)
    assert seen.see(1199.0, running=1, finished=0) == ""
    assert seen.see(1199.5, running=1, finished=0) == "No task has finished for 600 s"
