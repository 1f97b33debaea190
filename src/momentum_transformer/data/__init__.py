"""One file a data set: official formats or a seeded generator in, tensors out."""
