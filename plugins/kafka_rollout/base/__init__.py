"""Errors with remedies, findings, words, text from outside, the fence and JSON forms."""
