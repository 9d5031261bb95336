"""Rights on the listener of controllers that are not brokers."""

from __future__ import annotations

import pytest

from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.model.rights import CONTROLLERS_CONFIGS, OF_CONTROLLERS
from kafka_rollout.model.topology import Role
from tests.integration.conftest import MakeCluster
from tests.integration.harness.security.secured import CHANGER, CONTROLLERS, SecuredCluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.full]


def test_each_right_of_the_controllers_user_is_tested_on_their_listener(
    make_shared_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secured = SecuredCluster.create(
        make_shared_cluster, "4.3.1", tmp_path_factory.mktemp("files"), name="apart", layout="separate", size=1
    )

    def missing() -> list[tuple[str, str | None, Role]]:
        with KafkaAdmin(secured.spec, secured.security(CHANGER)) as admin:
            return [(str(one.right), one.principal, one.listener) for one in admin.missing_rights()]

    assert missing() == []
    for right in OF_CONTROLLERS:
        with secured.without(CONTROLLERS, right):
            wait_until(lambda: missing() == [(str(right), f"User:{CONTROLLERS}", Role.CONTROLLER)], 60)  # noqa: B023
    with (
        KafkaAdmin(secured.spec, secured.security(CHANGER)) as admin,
        secured.without(CONTROLLERS, CONTROLLERS_CONFIGS),
    ):
        wait_until(lambda: len(missing()) == 1, 60)
        with pytest.raises(Exception, match="does not allow its configuration"):
            admin.node_config(secured.spec.controllers[0])
