"""Images and labels: one file a data set."""
