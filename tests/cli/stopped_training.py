"""A training that ends as one that is killed: its first checkpoint is written, and no more."""

from contextlib import contextmanager

import pytest

from foveapool.training.checkpoint import RunFolder


@contextmanager
def killed_after_an_epoch():
    """Within it, a training ends after its first checkpoint."""
    save = RunFolder.save

    def last(*given):
        save(*given)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", last)
        yield
