"""Samplers: a trained model in, pictures out, by the recurrent form."""
