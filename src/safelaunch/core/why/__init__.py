"""The first cause in a set of logs: lines ▸ findings ▸ groups ▸ the verdict, as text, JSON and ticket."""
