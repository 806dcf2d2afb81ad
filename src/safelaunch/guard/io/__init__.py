"""The leader's side of its node guards: the code they get, the connection, their names."""
