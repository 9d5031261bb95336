"""The page "Kafka rollout"."""
