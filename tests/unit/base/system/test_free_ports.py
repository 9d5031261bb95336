"""Ports for processes that are to be started: from one range, and never one port for two at once."""

from __future__ import annotations

import socket

import pytest

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.base.system.free_ports import HOST, free_ports, reserved_ports


def test_two_who_ask_at_once_get_different_ports_and_none_on_which_a_process_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reserved_ports(4) as found:
        monkeypatch.setenv("KAFKA_ROLLOUT_PORTS", f"{min(found)}-{max(found)}")
        with reserved_ports(1) as others:
            assert not {*found} & {*others}
        monkeypatch.setenv("KAFKA_ROLLOUT_PORTS", f"{found[0]}-{found[0]}")
        with pytest.raises(FatalError, match="no 1 free ports") as refused:
            free_ports(1)
        assert "KAFKA_ROLLOUT_PORTS" in refused.value.remedy


def test_they_are_of_the_range_that_is_wanted_and_can_be_listened_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (one,) = free_ports(1)
    monkeypatch.setenv("KAFKA_ROLLOUT_PORTS", f"{one}-{one}")
    assert free_ports(1) == (one,)
    with socket.create_server((HOST, one)):
        pass


@pytest.mark.parametrize("text", ["20000", "30000-20000", "80-90", "20000-70000", "a-b", "-"])
def test_what_is_no_range_is_refused_with_one_that_is(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_PORTS", text)
    with pytest.raises(UserError, match="not a range of ports") as refused:
        free_ports(1)
    assert "20000-32767" in refused.value.remedy
