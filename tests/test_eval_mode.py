"""Evaluation mode for a while: whatever a layer makes of its mode is undone afterwards."""

import pytest
from torch import nn

from foveapool._eval_mode import eval_mode


class Merges(nn.Linear):
    """Does more than note its mode, as layers of adapters do."""

    merged = False

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


def network():
    made = nn.Sequential(Merges(2, 2), nn.Sequential(nn.Dropout(), Merges(2, 2)))
    made[1][0].eval()
    return made


def test_every_module_is_put_back_by_its_own_means():
    made = network()
    with pytest.raises(KeyError), eval_mode(made):
        assert made[0].merged and made[1][1].merged and not made[1].training
        raise KeyError
    assert not made[0].merged and not made[1][1].merged
    assert [module.training for module in made.modules()] == [True, True, True, False, True]


def test_what_was_in_evaluation_mode_stays_there():
    made = network().eval()
    with eval_mode(made):
        pass
    assert made[0].merged and not any(module.training for module in made.modules())
