"""kafka-python's coordinator with the dynamic rebalance protocol of KAFKA-12477.

The only module that uses names of kafka-python that are not public. `check_kafka_python` compares them with the
installed version; pyproject.toml has the range of versions.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import kafka
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.abstract import RebalanceProtocol as KafkaProtocol
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import CommitFailedError, KafkaError
from kafka.future import Future
from kafka.protocol.consumer import UNKNOWN_MEMBER_ID
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata, TopicPartition

from dynamic_protocol_consumer.assignors import CooperativeStickyAssignor
from dynamic_protocol_consumer.member import Member
from dynamic_protocol_consumer.protocols import Assignor, RebalanceProtocol

log = logging.getLogger(__name__)

TESTED = "3.0.12"
_TOUCHED: dict[type, dict[str, tuple[str, ...]]] = {
    ConsumerCoordinator: {
        "_invoke_rebalance_listener_async": ("method_name", "arg"),
        "_lookup_assignor": ("name",),
        "_on_join_complete_async": ("generation", "member_id", "protocol", "member_assignment_bytes"),
        "_on_join_prepare_async": ("generation", "member_id", "timeout_ms"),
        "_process_join_group_response": ("response", "send_time"),
        "_send_offset_commit_request": ("offsets",),
        "commit_offsets_sync": ("offsets", "timeout_ms"),
        "group_protocols": (),
        "need_rejoin": (),
        "poll": ("timeout_ms",),
        "request_rejoin": (),
        "reset_generation": ("member_id",),
    },
    SubscriptionState: {"assign_from_subscribed": ("assignments",), "assigned_partitions": ()},
}
_ATTRIBUTES = (
    *("_assignment_snapshot", "_assignors", "_generation", "_is_leader", "_join_task", "_net", "_rebalance_protocol"),
    *("_subscription", "auto_commit_interval", "next_auto_commit_deadline", "rejoining"),
)


class UnreadJoin:
    """A join that is not done until its result was read: the base class takes None for a join that was read."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self.task = task

    def add_callback(self, call: Callable[[Any], None]) -> None:
        self.task.add_callback(call)

    def add_errback(self, call: Callable[[Any], None]) -> None:
        self.task.add_errback(call)

    def __await__(self) -> Generator[Any, Any, Any]:
        awaiting: Generator[Any, Any, Any] = self.task.__await__()
        return awaiting


class KeptJoins(ConsumerCoordinator):  # type: ignore[misc]
    """kafka-python's coordinator with a fix: the next poll() continues a rebalance that takes longer than one poll().

    The base class loses such a rebalance in two cases, and the member leaves the group temporarily or permanently:

    - It drops a join whose response arrives between two polls and starts again, and so all other members rejoin, too.
      With polls shorter than a join, or on a slow machine, the group may never become stable.
    - A leader rejoins because metadata changed. It assigns with the new metadata, so the reason no longer exists. If
      the poll times out during this rejoin, the member continues without an assignment and without heartbeats.
    """

    @property
    def _join_task(self) -> UnreadJoin | None:
        join: UnreadJoin | None = self.__dict__["_join_task"]
        return join

    @_join_task.setter
    def _join_task(self, task: Any) -> None:
        self.__dict__["_join_task"] = None if task is None else UnreadJoin(task)

    def need_rejoin(self) -> bool:
        begun = self.rejoining and self._subscription.partitions_auto_assigned()
        return bool(begun or super().need_rejoin())

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        """Leave the group and drop a finished join whose result was not read."""
        super().reset_generation(member_id)
        if self._join_task is not None and self._join_task.task.is_done:
            self._join_task = None


class DynamicCoordinator(KeptJoins):
    """`Member` decides; the base class sends requests, heartbeats and commits."""

    _member: Member
    _refusal: CommitFailedError | None
    _in_listener: bool

    @classmethod
    def take_over(cls, consumer: KafkaConsumer) -> DynamicCoordinator:
        """Change the class of a new consumer's coordinator, because KafkaConsumer accepts no other class; return it.

        Raises RuntimeError if the coordinator lacks an attribute, ValueError if its assignors have no common protocol.
        """
        coordinator = consumer._coordinator
        missing = [name for name in _ATTRIBUTES if name not in vars(coordinator)]
        if missing:
            raise _unfit(f"a coordinator has no {missing[0]}")
        coordinator.__class__ = cls
        coordinator._member = Member.start(
            Assignor(
                name=assignor.name,
                protocols=frozenset(RebalanceProtocol(protocol) for protocol in assignor.supported_protocols()),
            )
            for assignor in coordinator._assignors.values()
        )
        coordinator._refusal = None
        coordinator._in_listener = False
        taken: DynamicCoordinator = coordinator
        return taken

    @property
    def member(self) -> Member:
        return self._member

    def group_protocols(self) -> list[tuple[str, Any]]:
        for assignor in self._assignors.values():
            if isinstance(assignor, CooperativeStickyAssignor):
                assignor.claim(self._subscription.assigned_partitions(), self._generation.generation_id)
        protocols: list[tuple[str, Any]] = super().group_protocols()
        return protocols

    def reset_generation(self, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        super().reset_generation(member_id)
        self._member = self._member.out_of_group()
        if self._subscription.assigned_partitions():
            # Also between JoinGroup and its response: a member must not claim partitions from before it left the group.
            self.rejoining = False

    async def _on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        try:
            await super()._on_join_prepare_async(generation, member_id, timeout_ms)
        finally:
            if self._member.to_revoke_before_joining(frozenset(self._subscription.assigned_partitions())):
                # The base class would keep the partitions with stale positions, if another member had them in between.
                self._subscription.assign_from_subscribed([])

    def _process_join_group_response(self, response: Any, send_time: float) -> Any:
        answer = super()._process_join_group_response(response, send_time)
        # A group of the new protocol has no leader, and its response names none.
        self._member = self._member.joined(
            answer.generation_id, answer.protocol_name, in_classic_group=bool(answer.leader)
        )
        return answer

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        if not self._is_leader:
            self._assignment_snapshot = None
        assignment = ConsumerProtocolAssignment.decode(member_assignment_bytes)
        assigned = frozenset(assignment.partitions())
        if not {partition.topic for partition in assigned} <= self._subscription.subscription:
            log.warning("Group %s: the assignment has topics that are not subscribed; joining again", self.group_id)
            self.request_rejoin()
            return
        owned = frozenset(self._subscription.assigned_partitions())
        before = self._member.protocol
        self._member, todo = self._member.assigned(owned=owned, assigned=assigned)
        if todo.lost:
            log.warning(
                "Group %s: assignor %s may have given these partitions to others while this member held them; they are"
                " lost and their offsets cannot be committed: %s",
                *(self.group_id, protocol, _names(todo.lost)),
            )
        # Kafka's order (ConsumerCoordinator.onJoinComplete): revoked partitions are still assigned in their callback.
        failures = []
        for method, partitions in (("on_partitions_lost", todo.lost), ("on_partitions_revoked", todo.revoked)):
            if partitions:
                failures.append(await self._notify(method, partitions))
        self._subscription.assign_from_subscribed(sorted(owned - todo.lost - todo.revoked))
        self._subscription.assign_from_subscribed(sorted(assigned))
        self._member = self._member.took_over(todo.added)
        self._lookup_assignor(protocol).on_assignment(assignment, generation)
        self.next_auto_commit_deadline = time.monotonic() + self.auto_commit_interval
        self._rebalance_protocol = KafkaProtocol(self._member.protocol)
        if before is not self._member.protocol:
            log.info("Group %s: %s was selected, now %s", self.group_id, protocol, self._member.protocol.name)
        failures.append(await self._notify("on_partitions_assigned", todo.added))
        if todo.rejoin:
            self.request_rejoin()
        for failure in filter(None, failures):
            raise KafkaError("User rebalance callback throws an error") from failure

    async def _notify(self, method: str, partitions: frozenset[tuple[str, int]]) -> Exception | None:
        if self._subscription.rebalance_listener is None:
            return None
        try:
            await self._invoke_rebalance_listener_async(
                method, {TopicPartition(*partition) for partition in partitions}
            )
        except Exception as error:
            log.exception("Group %s: the rebalance listener failed in %s", self.group_id, method)
            return error
        return None

    async def _invoke_rebalance_listener_async(self, method_name: str, arg: set[TopicPartition]) -> None:
        """Run plain listeners in a separate thread: heartbeats continue, and they can call the consumer (commit)."""
        callback = getattr(self._subscription.rebalance_listener, method_name)
        self._in_listener = True
        try:
            if inspect.iscoroutinefunction(callback):
                await callback(arg)
            else:
                await self._in_thread(lambda: callback(arg))
        finally:
            self._in_listener = False

    async def _in_thread(self, call: Callable[[], None]) -> None:
        done = Future()

        def work() -> None:
            failure: BaseException | None = None
            try:
                call()
            except BaseException as error:
                failure = error

            def settle() -> None:
                if failure is None:
                    done.success(None)
                else:
                    done.failure(failure)

            self._net.call_soon_threadsafe(settle)

        threading.Thread(target=work, name=f"{threading.current_thread().name}-listener", daemon=True).start()
        await done

    async def _send_offset_commit_request(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Any:
        """All commits use this method: synchronous, asynchronous and automatic ones."""
        refused = self._member.refused(offsets)
        if refused:
            self._refusal = CommitFailedError(
                f"Offsets of {_names(refused)} cannot be committed: an assignor without the cooperative"
                " protocol gave these partitions to other members while this one still held them."
            )
            raise self._refusal
        return await super()._send_offset_commit_request(offsets)

    def commit_offsets_sync(self, offsets: Any, timeout_ms: float | None = None) -> Any:
        try:
            return super().commit_offsets_sync(offsets, timeout_ms)
        except CommitFailedError:
            if not self._in_listener:
                self._refusal = None  # the caller gets this error
            raise

    def poll(self, timeout_ms: float | None = None) -> bool:
        """Raises CommitFailedError, once the rebalance is over and before records are taken, if one was refused."""
        cause: KafkaError | None = None
        joined = False
        try:
            joined = super().poll(timeout_ms)
        except KafkaError as error:
            cause = error
        refusal = self._refusal
        if refusal is not None and not self.rejoining:
            self._refusal = None
            raise refusal from cause
        if cause is not None:
            raise cause
        return joined


def check_kafka_python() -> None:
    """Raise RuntimeError if this coordinator does not support the installed kafka-python."""
    if kafka.__version__.split(".")[:2] != TESTED.split(".")[:2]:
        raise _unfit("this version is not tested")
    for owner, methods in _TOUCHED.items():
        for name, wanted in methods.items():
            method = getattr(owner, name, None)
            parameters = () if method is None else tuple(inspect.signature(inspect.unwrap(method)).parameters)[1:]
            if method is None or parameters != wanted:
                raise _unfit(f"{owner.__name__}.{name} has other parameters")


def _unfit(what: str) -> RuntimeError:
    return RuntimeError(
        f"DynamicProtocolConsumer does not support kafka-python {kafka.__version__}: {what}; install kafka-python"
        f" {TESTED}, the tested version."
    )


def _names(partitions: frozenset[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
