"""Each way to raise levels refuses what earlier runs found and no approver accepted."""

from __future__ import annotations

from tests.architecture.test_covered_traffic import files, users_of


def test_who_sends_levels_refuses_what_earlier_runs_left_open() -> None:
    senders = files(lambda source: users_of("ensure_levels", source))
    assert senders == {"feature_updates/levels.py", "feature_updates/update.py"}
    assert senders <= files(lambda source: users_of("refuse_unaccepted_of_runs", source))
