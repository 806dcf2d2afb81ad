"""What a leader knows and does at the moment, each part written by its own file only."""
