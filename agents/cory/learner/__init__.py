"""The update of one policy: optimizer, loss passes, KL coefficient; the central critic."""
