"""Tasks whose data is made from a seed: no files, and minutes to tell models apart."""
