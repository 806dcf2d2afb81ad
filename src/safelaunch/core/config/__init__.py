"""train.yaml and its layers ▸ the resolved config: its keys, kinds and rules, the YAML they are read from."""
