"""Images outside of a data set are normalized as those inside."""

import pytest
import torch

from foveapool.data.batches import iterate_batches, load_resident, make_normalizer

from ..training.toys import toy_data


@pytest.mark.parametrize("normalization", ["channel", "image"])
def test_the_test_images_become_what_evaluation_sees(normalization):
    data = toy_data(normalization=normalization)
    (wanted, _), *_ = iterate_batches(load_resident(data, "cpu")[1])
    images = data.test.images.contiguous(memory_format=torch.channels_last)
    found = make_normalizer(data)(images)
    assert torch.equal(found, wanted)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_an_image_of_one_color_becomes_zero():
    grey = torch.full((2, 3, 16, 16), 90, dtype=torch.uint8)
    assert not make_normalizer(toy_data(normalization="image"))(grey).any()
