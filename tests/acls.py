"""ACLs of tests."""

from __future__ import annotations

from typing import Any

from kafka_rollout.model.acls import Acl


def read_acl(principal: str, *, host: str = "*", **fields: Any) -> Acl:
    """An ACL that allows a principal to read topic orders."""
    of = {"resource_type": 2, "resource_name": "orders", "pattern_type": 3, "operation": 3, "permission": 3}
    return Acl(principal=principal, host=host, **{**of, **fields})
