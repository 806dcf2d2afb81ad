"""How a run is doing, in words: its state, what its restarts have cost, when it will be done."""
