"""A correctness-gated benchmark of causal attention on a CPU: agree first, then be timed."""
