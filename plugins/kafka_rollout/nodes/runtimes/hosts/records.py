"""Whether the SSH user can write what a run records in its home folder, found before a stop.

Rights and free bytes do not show it: a quota, the number of files and a file system in error refuse the write alone. So
a file of that size is written, synchronized and removed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kafka_rollout.base.errors import FatalError, RefusedError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import RECORDS, HostCommands, service_of

_BYTES = 1 << 16
# A record is replaced, so its old and its new content exist together. Zeros could be stored in no space.
TRY_RECORDS = (
    f"if said=$( (mkdir -p {RECORDS} && tried=$(mktemp {RECORDS}/try.XXXXXX) && "
    "trap 'rm -f \"$tried\"' EXIT && trap 'exit 1' HUP INT PIPE TERM && "
    f'head -c $(({_BYTES} + $(cat {RECORDS}/starts-* 2>/dev/null | wc -c))) /dev/urandom >"$tried" && '
    'sync "$tried") 2>&1); then echo records; else echo no-records $said; fi'
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large|File size limit exceeded")


def read_try(lines: Sequence[str]) -> str | None:
    """Return why the records cannot be written; empty if they can, None if `lines` do not have it."""
    if "records" in lines:
        return ""
    return next((line.removeprefix("no-records ") for line in lines if line.startswith("no-records ")), None)


def find_full(problem: str) -> str:
    """Return what is full, in the words of the host; empty if another reason refuses the write."""
    match = _FULL.search(problem)
    return match[0] if match else ""


_FREE = (
    "Free space, files (`df --inodes`) or the quota of the home folder of the SSH user on host {host}, or make the "
    "folder writable. Then repeat the step."
)


def refuse_unwritable_records(commands: HostCommands, node: NodeSpec) -> None:
    """Raise RefusedError if what must be recorded after a stop cannot be written now."""
    host = service_of(node).host
    done = commands.run(node, TRY_RECORDS)
    problem = read_try(done.out.splitlines())
    if problem != "":
        raise RefusedError(
            f"Host {host} does not let the SSH user write {RECORDS} in its home folder: {problem or done.problem}. The "
            "node was not stopped.",
            remedy=_FREE.format(host=host),
        )


def not_recorded(node: NodeSpec, path: str, problem: str) -> FatalError:
    """Return the error of a record that the host did not take although it could before."""
    host = service_of(node).host
    return FatalError(
        f"{path} of node {node.name} cannot be written in the home folder of the SSH user on host {host}: {problem}.",
        remedy=_FREE.format(host=host),
    )
