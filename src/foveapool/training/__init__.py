"""Training: recipes as data, a fast loop, checkpoints that are never lost."""
