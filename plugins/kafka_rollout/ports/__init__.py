"""Ports: what the steps require of the outside world, one protocol per module.

Adapters implement them. Fakes for tests of pure steps are held to the same contract (tests/contract). All calls are
synchronous. A call that got no answer raises TransientError; a call whose answer is "no" returns it.
"""
