"""Outside: the brokers' sockets, files with credentials."""
