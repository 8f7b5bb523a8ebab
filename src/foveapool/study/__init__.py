"""The paper's procedure: train, fit, replace, train again, compare."""
