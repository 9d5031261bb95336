"""The file that spark-submit runs. It is alone in its folder, because Spark puts that folder first on the path."""

import sys

from kafka_rollout_spark.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
