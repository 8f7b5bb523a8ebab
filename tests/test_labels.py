"""Labels: what readers see for the names that settings and rows have, in one map."""

import pytest

from foveapool.data.registry import NAMES
from foveapool.labels import DATA, NETWORKS, POOLINGS, label_cell
from foveapool.networks import NETWORKS as BUILT
from foveapool.study import setting


def test_every_pooling_network_and_data_set_has_a_label_of_its_own():
    data = [name for name in NAMES if ":" not in name]
    for labels, names in ((POOLINGS, setting.POOLINGS), (NETWORKS, BUILT), (DATA, data)):
        assert set(labels) == set(names)
        assert len(set(labels.values())) == len(labels)


@pytest.mark.parametrize(
    ("column", "text", "label"),
    [
        ("pooling", "closed-form-trained", "closed form, then trained"),
        (
            "pooling",
            "sgd, pooling rate 0.1, beside blur, after, at 1, 2, beside max at 3",
            "P by SGD, pooling rate 0.1, beside BlurPool, after, at 1, 2, beside max at 3",
        ),
        ("network", "resnet18, width 16", "ResNet-18, width 16"),
        ("data", "svhn, 5 %", "SVHN, 5 %"),
        ("data", "npz:toys.npz", "npz:toys.npz"),
        ("pooling", "", ""),
        ("form", "mix", "mix"),
    ],
)
def test_a_name_is_labelled_and_what_stands_behind_it_stays(column, text, label):
    assert label_cell(column, text) == label
