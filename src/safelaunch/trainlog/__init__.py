"""What a log says of the training's progress: steps, speed, epochs, figures."""
