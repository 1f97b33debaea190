"""Faults on purpose: kills, crashes at every file operation, full disks; what they cost is in docs/robustness.md."""
