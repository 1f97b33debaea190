"""Translation, the paper's Table 5: sizes, the task, text in and text out, scores, and teachers to learn from."""
