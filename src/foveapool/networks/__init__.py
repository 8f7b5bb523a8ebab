"""The paper's two networks, with a pooling of any make as a constructor argument."""
