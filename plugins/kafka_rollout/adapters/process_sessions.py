"""Who belongs to a process that was started as the leader of a session of its own."""

from __future__ import annotations

import os
from collections.abc import Collection

import psutil


def session_members(leaders: Collection[int]) -> list[psutil.Process]:
    """The processes of the sessions that these process ids lead: Airflow's own set their titles over what they were
    started with, so that arguments and environment no longer tell whose they are.
    """
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in leaders:
                members.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return members
