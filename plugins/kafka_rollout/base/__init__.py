"""Errors with remedies, findings, words, text from outside, the lease and JSON forms.

Begin with:
- `errors.RolloutError`: the base of all errors: a sentence and its remedy
- `errors.UserError`: invalid input: correct it and call again
- `errors.RefusedError`: a check failed: follow the remedy, then call again
- `errors.TransientError`: a temporary failure: the same call can succeed later
- `errors.FatalError`: a failure that an operator must examine
- `findings.FindingCode`: what findings of one kind have in common; `found` makes a finding
- `findings.Check`: a check and the codes that it can find
- `wording.few`: the first items of a list and the number of the others, as text
- `json_forms.to_json`: the JSON form of a value; `from_json` reads it
- `system.settings.Settings`: the settings; the only reader of the environment
"""
