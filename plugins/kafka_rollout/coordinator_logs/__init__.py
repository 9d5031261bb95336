"""The scan of coordinator logs: verdicts, findings, remedies and comparison (KIP-915)."""
