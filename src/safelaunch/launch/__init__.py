"""What starts the ranks: the table of launchers, the runtimes of containers, numbers of tasks."""
