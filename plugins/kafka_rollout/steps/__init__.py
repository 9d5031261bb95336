"""One use case each: plan, approve, replace a node, finalize, report; the procedures."""
