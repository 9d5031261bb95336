"""How a node is kept from starting on a release although everything that can be checked before its stop is well."""

# The reporter makes its folder when the node starts, and the path counts from the node's own home: where a file is in
# the way it cannot, and no check of the configuration can judge that from afar.
BREAKS_WHERE_A_FILE_IS_IN_THE_WAY = {
    "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter",
    "kafka.csv.metrics.reporter.enabled": "true",
    "kafka.csv.metrics.dir": "figures/csv",
    "kafka.metrics.polling.interval.secs": "3600",
}
