"""Pictures byte by byte, the paper's Tables 2 and 3: sizes, and the task."""
