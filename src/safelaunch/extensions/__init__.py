"""What installed packages add: the kinds of plugins and the shape of each."""
