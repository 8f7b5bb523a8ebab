"""Into a stranger's network and out again: find, capture, replace."""
