"""Provider metadata for Airflow: its modules, the connection type and the fields of its form. Plain data."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Apache Kafka rollout"


def _modules(*names: str) -> list[dict[str, Any]]:
    """Return the modules below this package as an entry of the provider's metadata."""
    return [{"integration-name": _INTEGRATION, "python-modules": [f"kafka_rollout.airflow.{name}" for name in names]}]


def get_provider_info() -> dict[str, Any]:
    """Return the metadata for Airflow's entry point apache_airflow_provider."""
    text: dict[str, Any] = {"type": ["string", "null"]}
    secret: dict[str, Any] = {**text, "format": "password"}
    return {
        "package-name": "kafka-rollout",
        "name": "Kafka rollout",
        "description": "Upgrades and downgrades Apache Kafka (KRaft) clusters, one node at a time.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://kafka.apache.org/documentation/#upgrade",
                "tags": ["apache", "kafka"],
            }
        ],
        # What everybody can use. The modules of the tool's own DAGs are not listed.
        "operators": _modules("operators.kafka_cluster", "operators.kafka_coordinator_log_scan"),
        "sensors": _modules("sensors.kafka_cluster"),
        "triggers": _modules("sensors.condition_trigger"),
        "hooks": _modules("hooks.kafka_cluster"),
        "notifications": ["kafka_rollout.airflow.webhook.WebhookNotifier"],
        # The entry point airflow.plugins registers the plugin with its links; a second registration is an import error.
        "connection-types": [
            {
                "connection-type": "kafka_rollout",
                "hook-class-name": "kafka_rollout.airflow.hooks.kafka_cluster.KafkaClusterHook",
                "hook-name": "Kafka cluster",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {
                        "host": "Broker (or several: host:port,host:port)",
                        "login": "SASL username",
                        "password": "SASL password",
                    },
                },
                "conn-fields": {
                    "security.protocol": {
                        "label": "Security protocol",
                        "schema": {**text, "enum": ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]},
                    },
                    "sasl.mechanism": {
                        "label": "SASL mechanism",
                        "schema": {**text, "enum": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", None]},
                    },
                    "ssl.ca.location": {"label": "CA certificates (PEM file)", "schema": text},
                    "ssl.certificate.location": {"label": "Client certificate (PEM file)", "schema": text},
                    "ssl.key.location": {"label": "Client key (PEM file)", "schema": text},
                    "ssl.key.password": {"label": "Client key password", "schema": secret},
                    "ssl.endpoint.identification.algorithm": {
                        "label": "Hostname verification",
                        "schema": {**text, "enum": ["https", "none"], "default": "https"},
                    },
                },
            }
        ],
    }
