"""Outside: server.properties, meta.properties of log directories."""
