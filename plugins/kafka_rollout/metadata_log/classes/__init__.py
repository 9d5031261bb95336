"""Outside: Kafka's own classes in a JVM."""
