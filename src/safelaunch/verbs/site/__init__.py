"""doctor, policy, plugins, notify, sandbox, demo."""
