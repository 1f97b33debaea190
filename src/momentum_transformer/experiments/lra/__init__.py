"""Long Range Arena, the paper's Table 4: sizes, and its five tasks."""
