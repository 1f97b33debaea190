"""Attention in native code for CPUs."""
