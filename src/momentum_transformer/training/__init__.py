"""One training loop for all tasks: run directories, checkpoints, several processes, resuming."""
