"""train.yaml and its layers ▸ the resolved config: its keys and rules."""
