"""Spark settings that a scan requires before executors on other hosts get credentials.

Source: Spark's security documentation, TransportConf, AuthClientBootstrap and SecurityManager of Spark 4.3.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_rollout.base.errors import UserError

MASTER = "spark.master"
AUTHENTICATION, ENCRYPTION, TLS = "spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"
SETTINGS = (MASTER, AUTHENTICATION, ENCRYPTION, TLS)

_THIS_PROCESS = re.compile(r"local(\[[^]]*])?")  # local-cluster[…] has executors of its own
_PROTECTION = {
    "spark.network.crypto.saslFallback": "false",  # after a failed AES handshake Spark would use SASL, unencrypted
    "spark.io.encryption.enabled": "true",  # Spark can write a task with its credentials to a local disk
}


def protect_credentials(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the job adds so that executors can get credentials; empty with a local master.

    `settings`: Spark's values of SETTINGS; "" if not set. Raises UserError if they do not protect credentials.
    """
    master = settings[MASTER]
    if runs_in_one_process(master):
        return {}
    if not all(_is_on(settings[name]) for name in (AUTHENTICATION, ENCRYPTION)):
        raise UserError(
            f"Executors of the Spark master {master} cannot get the credentials of the cluster, because "
            f"{AUTHENTICATION} and {ENCRYPTION} are not both true.",
            remedy="Set both in spark-defaults.conf of the driver, the master and every worker, or use the Spark "
            "master local[2].",
        )
    if _is_on(settings[TLS]):
        raise UserError(
            f"Executors of the Spark master {master} cannot get the credentials of the cluster, because {TLS} "
            f"turns off {ENCRYPTION}, and without a trust store Spark accepts any certificate.",
            remedy=f"Set {TLS} to false on the driver, the master and every worker, or use the Spark master local[2].",
        )
    return dict(_PROTECTION)


def runs_in_one_process(master: str) -> bool:
    """Return whether the driver of this master also runs the tasks, so that no executor on another host gets them."""
    return _THIS_PROCESS.fullmatch(master) is not None


def _is_on(value: str) -> bool:
    return value.strip().lower() == "true"
