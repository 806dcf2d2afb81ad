"""What the report of a run shows: shares of its time, curves, and the drawings. Values in, values out."""
