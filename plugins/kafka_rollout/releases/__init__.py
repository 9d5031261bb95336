"""Facts of Kafka's releases, and what nodes report about theirs."""
