"""The files of claims: one for each open claim of a node, and one for the newest that has ended.

Names are random and a file is never overwritten by another run, so two runs that claim a node at the same time leave
two files, and each sees the other's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from kafka_rollout.base.json_forms import to_json
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.nodes.runtimes.properties import load_record

CLOSED = "closed.json"
OPEN = "open-*.json"
"""Pattern of the names."""
_NONCE = re.compile(r"[0-9a-f]{16,64}")


def name_of(claim: Claim) -> str:
    """Return the name of the file of an open claim."""
    if not _NONCE.fullmatch(claim.nonce):
        raise ValueError(f"not a nonce: {claim.nonce!r}")
    return f"open-{claim.nonce}.json"


def dump(claim: Claim) -> bytes:
    return json.dumps(to_json(claim)).encode() + b"\n"


def join_claims(opened: Iterable[str | bytes], closed: str | bytes | None, problems: Iterable[str] = ()) -> Claims:
    """Return the claims of the contents of files; `closed`: None without the file."""
    found = [load_record(Claim, text) for text in opened]
    ended = None if closed is None else load_record(Claim, closed)
    unread = list(problems)
    if None in found or (closed is not None and ended is None):
        unread.append("a file of them is damaged")
    whole = sorted((one for one in found if one is not None), key=lambda one: one.at)
    return Claims(open=tuple(whole), closed=ended, problem="; ".join(unread))
