"""Which certificates a client accepts does not depend on the version of Python."""

from __future__ import annotations

import ssl

import pytest

from kafka_rollout.base.system.tls import trusting

OF_PYTHON_313 = ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT


def test_the_stricter_checks_of_python_3_13_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    create = ssl.create_default_context

    def as_python_313(**given: str | None) -> ssl.SSLContext:
        context = create(**given)  # type: ignore[arg-type]
        context.verify_flags |= OF_PYTHON_313
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_python_313)
    context = trusting(None)
    assert not context.verify_flags & OF_PYTHON_313
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
