"""Who computes an attention: objects that refuse a call with a reason, or run it. Known to the front doors alone."""
