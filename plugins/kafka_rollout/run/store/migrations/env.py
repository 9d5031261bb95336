"""The script that Alembic runs. The caller provides the connection and its transaction."""

from alembic import context

from kafka_rollout.run.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
