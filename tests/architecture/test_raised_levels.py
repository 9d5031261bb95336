"""Each way to raise levels refuses what earlier runs found and no approver accepted, and what came after the plan."""

from __future__ import annotations

from tests.architecture.test_covered_traffic import files, users_of


def test_who_sends_levels_refuses_what_earlier_runs_left_open() -> None:
    senders = files(lambda source: users_of("ensure_levels", source))
    assert senders == {"feature_updates/levels.py", "feature_updates/update.py"}
    assert senders <= files(lambda source: users_of("refuse_unaccepted_of_runs", source))


def test_who_sends_levels_checks_the_running_nodes_again() -> None:
    senders = files(lambda source: users_of("ensure_levels", source))
    again = [files(lambda source, name=name: users_of(name, source)) for name in _AGAIN]  # type: ignore[misc]
    assert senders <= set().union(*again)


_AGAIN = ("refuse_new_blockers", "refuse_what_stays")  # the first calls the second
