"""The script of spark-submit. It is alone in its folder, because Python puts that folder first on the path."""

import sys
from functools import cache

from kafka_rollout_spark.python_path import use_installed_modules

if __name__ == "__main__":
    use_installed_modules()

    from pyspark.java_gateway import launch_gateway

    from kafka_rollout_spark.job import main

    sys.exit(main(sys.argv[1:], cache(launch_gateway)))
