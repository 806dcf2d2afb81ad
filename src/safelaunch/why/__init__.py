"""The first cause in a set of logs: lines ▸ findings ▸ groups ▸ the verdict, as text and JSON."""
