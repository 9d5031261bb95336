"""The request of a DAG run: the values of its form, as the steps read them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kafka_rollout.domain.features.requests import FeatureAction, FeatureOrder, parse_requests
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.planning.downgrade import WhereRefused
from kafka_rollout.domain.planning.request import ApprovalPolicy, DowngradeType, FinalizePolicy, Request

INTERVAL_S = 1.0  # between two checks of a gate


def request_of(params: Mapping[str, Any]) -> Request:
    """Return the request of a form. A form has only the parameters of its own procedure."""
    target, interval_s = params.get("target_release"), params.get("snapshot_interval_seconds")
    return Request(
        target=Release.parse(target) if target else None,
        dry_run=bool(params.get("dry_run")),
        finalize=FinalizePolicy.from_form(params.get("finalize", FinalizePolicy.LATER.form_value)),
        traffic=bool(params.get("ledger")),
        canary=bool(params.get("canary_approval")),
        snapshot_interval_ms=None if interval_s is None else 1000 * int(interval_s),
        level=params.get("target_level"),
        downgrade_type=DowngradeType(params.get("downgrade_type", DowngradeType.SAFE)),
        where_refused=WhereRefused(params.get("where_refused", WhereRefused.STOP)),
        features=partial(_features, params) if "action" in params else None,
        approval=ApprovalPolicy(params.get("approval", ApprovalPolicy.ALWAYS)),
        soak_s=float(params.get("soak_seconds", 0.0)),
        checks=int(params.get("looks", 1)),
        interval_s=INTERVAL_S,
        gate_timeout_s=60.0 * float(params.get("gate_timeout_minutes", 10)),
    )


def _features(params: Mapping[str, Any]) -> FeatureOrder:
    """Return the requested changes. A release's levels can be lower: lowered levels always need an approval."""
    release, action = params["release_version"], FeatureAction(params["action"])
    named = parse_requests(params["upgrade"] or (), params["downgrade"] or (), params["delete"] or ())
    if named and action is not FeatureAction.UPDATE:
        raise UserError(
            f"Single features can be named only for an update, not for {action.value}.", remedy="Empty the lists."
        )
    return FeatureOrder(action=action, named=named, release=Release.parse(release) if release else None)
