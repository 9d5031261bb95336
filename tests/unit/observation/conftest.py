from tests.unit.fake_run import cluster, no_waiting, ports

__all__ = ["cluster", "no_waiting", "ports"]  # fixtures
