"""Token-by-token generation by the native kernels, with states updated in place."""
