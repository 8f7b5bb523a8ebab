"""The method: scatter, eigenvectors, operator, module."""
