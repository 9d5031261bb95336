"""Alembic's entry: the connection and its transaction come from the caller."""

from alembic import context

from kafka_rollout.adapters.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
