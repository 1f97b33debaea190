"""One token at a time, in place, by native code."""
