"""Time limits of what a run does to nodes and asks them, in seconds. A limit that contains another is its sum.

The order from the inside: a command on a host (`CHANGE_WITHIN_S`), the stop of a process (`STOP_S`, `KILL_S`), the
unit of the node, the lease of the lock, Airflow's limit of the task. A test shows that they nest.
"""

from __future__ import annotations

RESPONSE_S = 10.0
"""A node that did not answer a request within this time is silent."""
SILENT_RESPONSE_S = 1.0
"""A silent node must answer the next requests to read within this time, so that it costs `RESPONSE_S` once."""
SILENT_FOR_S = 60.0
"""After this time a silent node gets `RESPONSE_S` again."""
CHANGE_WITHIN_S = 20.0
"""A change reaches its node within this time after the check of the lease, or not at all.

The check requires a lease that is valid for longer, so no other run can act while a change is on its way."""
KILL_S = 20.0
"""A killed process must be gone after this time."""
STOP_S = 180.0
"""A controlled shutdown. A unit of systemd must allow as much (TimeoutStopSec)."""
WITHOUT_QUORUM_S = 60.0
"""A combined node without a quorum can hang in its controlled shutdown. It is killed after this time."""
STOP_UNDER_WAY_S = STOP_S + KILL_S + 10.0
"""A stop that a killed call requested can still be in progress for this time, so the node can look degraded."""
SAFE_AGAIN_WITHIN_S = 60.0
"""The operator's commands before a stop can move leaders: the gate after them gets this time to pass again."""
INSTALL_AND_START_S = 640.0
"""The release is put in place, and the service manager has started the process."""
REPLACEMENT_S = SAFE_AGAIN_WITHIN_S + STOP_S + KILL_S + INSTALL_AND_START_S
"""The replacement of a node, without the operator's commands before its stop."""
LOGS_OF_NODE_S = 3600.0
"""The largest metadata log of a node is read, written and copied in less time."""
RENEW_EVERY_S = 60.0
"""A process that holds the lock renews its lease this often."""
LEASE_S = 600.0
"""The lease after the last step or renewal of a run: a killed run does not block others for long."""
LEASE_OF_STOP_S = LEASE_S + STOP_S
LEASE_OF_LOGS_S = LEASE_S + LOGS_OF_NODE_S
