"""Opens the ports with the real clients and files; the process of a rehearsal's sandbox.

Outside: what the lower rooms reach.
"""
