"""Ports: what the steps require of the outside world, one protocol per module.

Adapters implement them. The fakes of the tests fulfil the same contract (tests/contract). All calls are synchronous. A
call without an answer raises TransientError.
"""
