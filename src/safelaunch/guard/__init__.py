"""The leader's side of its node guards."""
