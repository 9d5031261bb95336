from tests.unit.fake_run import cluster, no_waiting, plan, ports

__all__ = ["cluster", "no_waiting", "plan", "ports"]  # fixtures
