"""How the shell of a host finds the process of Kafka in a unit."""

from __future__ import annotations

from kafka_rollout.model.starts import MAIN_CLASS

FIND_KAFKA = (
    "main=$(systemctl show --property=MainPID --value {unit}); below=$main; kafka=; "
    'while test "${{below:-0}}" != 0 && test -z "$kafka"; do for pid in $(echo "$below" | tr , " "); do '
    "if tr '\\0' '\\n' 2>/dev/null </proc/$pid/cmdline | grep -qxF " + MAIN_CLASS + "; "
    'then kafka=$pid; fi; done; below=$(pgrep -d, -P "$below"); done; '
)
"""`main` is the main process, `kafka` this one or its nearest child whose command line has Kafka's main class."""
PROCESS = FIND_KAFKA + "pid=${{kafka:-$main}}; "
