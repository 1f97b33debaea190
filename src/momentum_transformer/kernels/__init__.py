"""The paper's attention in native code for CPUs; chosen by `ops`, known to nobody else."""
