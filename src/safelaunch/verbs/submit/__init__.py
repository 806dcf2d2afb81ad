"""submit, check, script, config, schema, init."""
