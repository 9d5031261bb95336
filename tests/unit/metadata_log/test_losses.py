from __future__ import annotations

import pytest

from kafka_rollout.metadata_log.losses import ImageRecord, compare, with_paths

MIGRATING, DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA", "SjsugtA7F6YxfWx3HdBG8w"
TOPIC = ImageRecord("TopicRecord", {"topicId": "t1", "name": "orders"})


def broker(**fields: object) -> ImageRecord:
    defaults = {"brokerId": 1, "logDirs": [], "cordonedLogDirs": None, "endPoints": []}
    return ImageRecord("RegisterBrokerRecord", {**defaults, **fields})


def partition(**fields: object) -> ImageRecord:
    defaults = {"topicId": "t1", "partitionId": 2, "directories": [], "eligibleLeaderReplicas": None, "isr": [1, 2]}
    return ImageRecord("PartitionRecord", {**defaults, **fields})


def test_the_same_image_loses_nothing() -> None:
    assert compare([TOPIC, broker(), partition()], [partition(), broker(), TOPIC]) == ((), ())


def test_a_loss_names_the_object_what_it_loses_and_its_values() -> None:
    (loss,), defaults = compare([broker(cordonedLogDirs=[DIRECTORY])], [broker(cordonedLogDirs=None)])
    assert (loss.kind, loss.subject) == ("cordoned log directories", "broker 1")
    assert loss.sentence == f"Broker 1 loses its cordoned log directories: {DIRECTORY}."
    assert defaults == ()


def test_a_directory_has_its_path_beside_its_id_where_that_is_known() -> None:
    other = "GW3o3WtJiBH-UkVeluX5Jg"
    losses, _ = compare([broker(logDirs=[DIRECTORY, other])], [broker()])
    (named,) = with_paths(losses, {other: "/data/2", "SjsugtA7F6Y": "/no/whole/id"})
    assert named.sentence == f"Broker 1 loses its online log directories: {DIRECTORY}, /data/2 ({other})."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (broker(cordonedLogDirs=[]), broker(cordonedLogDirs=None)),
        (partition(directories=[MIGRATING, MIGRATING]), partition(directories=[])),
        (partition(eligibleLeaderReplicas=[]), partition(eligibleLeaderReplicas=None)),
    ],
)
def test_a_field_that_said_nothing_is_a_default_and_no_loss(before: ImageRecord, after: ImageRecord) -> None:
    losses, (default,) = compare([TOPIC, before], [TOPIC, after])
    assert losses == ()
    assert default.subject in ("broker 1", "orders-2")


def test_members_of_an_elr_are_a_loss_though_kafkas_handler_is_silent() -> None:
    (loss,), _ = compare([TOPIC, partition(eligibleLeaderReplicas=[3])], [TOPIC, partition()])
    assert loss.sentence == "orders-2 loses its eligible leader replicas: 3."


def test_a_record_that_is_gone_is_a_loss_of_the_whole_object() -> None:
    registration = ImageRecord("RegisterControllerRecord", {"controllerId": 101})
    scram = ImageRecord("UserScramCredentialRecord", {"name": "alice", "mechanism": 1, "salt": b"s", "storedKey": b"k"})
    losses, _ = compare([registration, scram], [])
    assert [loss.sentence for loss in losses] == [
        "The controller registration of controller 101 is lost.",
        "The SCRAM credential of user alice (SCRAM-SHA-256) is lost.",
    ]


def test_secrets_are_never_shown() -> None:
    def user(key: bytes) -> ImageRecord:
        return ImageRecord("UserScramCredentialRecord", {"name": "alice", "mechanism": 1, "storedKey": key})

    def token(hmac: bytes, owner: str) -> ImageRecord:
        return ImageRecord("DelegationTokenRecord", {"tokenId": "T", "owner": owner, "hmac": hmac})

    losses, _ = compare([user(b"secret"), token(b"secret", "bob")], [user(b""), token(b"", "bob")])
    assert len(losses) == 2
    assert not any("secret" in loss.sentence for loss in losses)
    values = ImageRecord("ConfigRecord", {"resourceType": 2, "resourceName": "orders", "name": "x", "value": "secret"})
    (loss,), _ = compare([values], [])
    assert loss.sentence == "The configuration of x of topic orders is lost."


def test_the_order_of_listeners_is_no_difference_but_that_of_replicas_is() -> None:
    one, two = {"name": "A", "port": 1}, {"name": "B", "port": 2}
    assert compare([broker(endPoints=[one, two])], [broker(endPoints=[two, one])]) == ((), ())
    (loss,), _ = compare([TOPIC, partition(isr=[1, 2])], [TOPIC, partition(isr=[2, 1])])
    assert loss.sentence == "orders-2: isr changes from 1, 2 to 2, 1."
