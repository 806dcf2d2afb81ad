"""The training's progress: what its log says of steps, speed, and work that was lost."""
