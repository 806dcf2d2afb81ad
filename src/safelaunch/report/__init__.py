"""What the report of a run shows: curves, and the drawings. Values in, values out."""
