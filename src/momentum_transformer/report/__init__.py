"""Run directories in; figures, tables and one HTML page out. Reads nothing else, and is imported by nothing else."""
