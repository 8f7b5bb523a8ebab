"""Maps of one axis and of three, of audio and video: listed, fitted, replaced, kept, restored."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

import foveapool as fp
from foveapool.pooling.mixing import MixingPool
from foveapool.surgery.geometry import Unstrided

from .toys import anatomy

POOLS = {1: fp.LinearPool1d, 3: fp.LinearPool3d}
MODES = ("replace", "after", "mix")


class Gated(nn.Module):
    """A residual block of WaveNet: causal, dilated, gated."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.margin = dilation
        self.filter, self.gate = (nn.Conv1d(channels, channels, 2, dilation=dilation) for _ in "ab")
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        past = F.pad(x, (self.margin, 0))
        return x + self.skip(self.filter(past).tanh() * self.gate(past).sigmoid())


class BlurPool1d(nn.Module):
    """A layer of another make, whose stride is one number."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = 2, channels
        self.register_buffer("kernel", torch.tensor([0.25, 0.5, 0.25]).expand(channels, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 1), "reflect")
        return F.conv1d(x, self.kernel, stride=self.stride, groups=self.channels)


class SamePad1d(nn.Conv1d):
    """Pads by its stride, as TensorFlow does."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel,), (step,) = self.kernel_size, self.stride
        missing = max((-(-x.shape[2] // step) - 1) * step + kernel - x.shape[2], 0)
        x = F.pad(x, (missing // 2, missing - missing // 2))
        return F.conv1d(x, self.weight, self.bias, self.stride, groups=self.groups)


def wavenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 4, 10, stride=5),
        Gated(4, 1),
        Gated(4, 2),
        nn.Conv1d(4, 8, 3, 2, 1),
        nn.ReLU(),
        BlurPool1d(8),
        SamePad1d(8, 8, 4, 2, groups=2, bias=False),
        nn.AvgPool1d(2, ceil_mode=True),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def convolved(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    layer = nn.Conv3d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm3d(outputs))


class VideoBlock(nn.Module):
    """A basic block of r3d_18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolved(inputs, outputs, stride=stride)
        self.conv2 = convolved(outputs, outputs)
        same = inputs == outputs and stride == 1
        self.downsample = nn.Identity() if same else convolved(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.downsample(x))


def r3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(3, 4, (3, 5, 5), (1, 2, 2), (1, 2, 2), bias=False),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2, ceil_mode=True),
        VideoBlock(4, 4, 1),
        VideoBlock(4, 8, 2),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "wavenet": (wavenet, (1, 122), ["0", "3", "5", "6", "7"]),
    "r3d": (r3d, (3, 4, 10, 10), ["0", "3", "5.conv1.0", "5.downsample.0"]),
}
networks = pytest.mark.parametrize("name", NETWORKS)


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name][0]().eval()


def loader(name: str, count: int = 30) -> list[tuple[Tensor, Tensor]]:
    random, labels = torch.Generator().manual_seed(1), torch.arange(count) % 3
    shape = NETWORKS[name][1]
    maps = torch.randn(count, *shape, generator=random)
    maps += torch.randn(3, *shape, generator=random)[labels]
    return [(maps[:20], labels[:20]), (maps[20:], labels[20:])]


def names_for(model: nn.Module, name: str, mode: str) -> list[str]:
    names = NETWORKS[name][2]
    convolutions = (nn.Conv1d, nn.Conv3d)
    mixed = [each for each in names if isinstance(model.get_submodule(each), convolutions)]
    return mixed if mode == "mix" else names


@networks
def test_what_shrinks_is_listed_in_order_with_its_sizes(name):
    found = fp.downsampling_layers(network(name), loader(name)[0][0])
    assert [each.name for each in found] == NETWORKS[name][2]
    assert not found.unlisted
    lines = {
        "wavenet": "0      Conv1d      1 -> 4    122 -> 23  4",
        "r3d": "0               Conv3d     3 -> 4    4x10x10 -> 4x5x5  1 and a 1x1 convolution",
    }
    assert str(found).splitlines()[1].startswith(lines[name])


@pytest.mark.parametrize("window", ["auto", 1])
@pytest.mark.parametrize("mode", MODES)
@networks
def test_a_network_is_fitted_replaced_trained_saved_and_restored(name, mode, window, tmp_path):
    model, data = network(name), loader(name)
    names, images = names_for(model, name, mode), data[0][0]
    before, wanted = anatomy(model), model(images)
    settings = {} if mode != "mix" else {"components": 2}
    fit = fp.ClosedFormPooling(window=window, **settings).fit(model, data, names, mode)
    fit.save(tmp_path / "fit")
    fit = fp.ClosedFormPooling.load(tmp_path / "fit")
    done = fit.replace(model, trainable=True, check=data)
    assert done.agreement.count == 30
    axes = images.dim() - 2
    for change in done.changes:
        assert type(change.new.pool) is POOLS[axes]
    pooled = model(images)
    assert pooled.shape == wanted.shape and not torch.allclose(pooled, wanted)
    pooled.square().sum().backward()
    assert all(float(each.new.pool.weight.grad.abs().max()) > 0 for each in done.changes)
    fp.save(model, tmp_path / "adapter")
    fresh = network(name)
    fp.load(fresh, tmp_path / "adapter")
    assert torch.equal(fresh(images), pooled)
    fp.restore(model)
    assert torch.equal(model(images), wanted) and anatomy(model) == before


@networks
def test_behind_its_layers_a_local_pooling_changes_nothing(name):
    model, data = network(name), loader(name)
    wanted = model(data[0][0])
    fit = fp.ClosedFormPooling(alpha=1e9, alpha_unit="trace")
    fit.fit(model, data, NETWORKS[name][2], "after").replace(model)
    torch.testing.assert_close(model(data[0][0]), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@networks
def test_replaced_networks_compile_export_and_become_onnx_files(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, data = network(name), loader(name)
    names, images = NETWORKS[name][2], data[0][0][:2]
    for some, window in ((names[:1], None), (names[1:], 1)):
        fp.ClosedFormPooling(window=window).fit(model, data, some).replace(model)
    wanted = model(images).detach()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    exported = torch.export.export(model, (images,)).module()
    file = io.BytesIO()
    torch.onnx.export(model, (images,), dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    (given,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    for answer in (compiled(images), exported(images), torch.from_numpy(given)):
        torch.testing.assert_close(answer, wanted, rtol=1e-3, atol=1e-4)


LAYERS = {
    "AvgPool1d": (nn.AvgPool1d(3, 2, 1, ceil_mode=True), (8,)),
    "AvgPool1d without its padding": (nn.AvgPool1d(3, 2, 1, True, count_include_pad=False), (8,)),
    "MaxPool1d": (nn.MaxPool1d(3, 2, 1, 2, ceil_mode=True), (10,)),
    "LPPool1d": (nn.LPPool1d(2, 3, 2, ceil_mode=True), (10,)),
    "AdaptiveAvgPool1d": (nn.AdaptiveAvgPool1d(5), (10,)),
    "AdaptiveMaxPool1d": (nn.AdaptiveMaxPool1d(5), (10,)),
    "AvgPool3d": (nn.AvgPool3d(3, 2, 1, ceil_mode=True, divisor_override=5), (4, 8, 7)),
    "MaxPool3d": (nn.MaxPool3d((1, 3, 2), (1, 2, 2), ceil_mode=True), (3, 8, 7)),
    "LPPool3d": (nn.LPPool3d(2, 2, ceil_mode=True), (3, 4, 5)),
    "AdaptiveAvgPool3d": (nn.AdaptiveAvgPool3d((1, 2, 3)), (1, 4, 6)),
    "AdaptiveMaxPool3d": (nn.AdaptiveMaxPool3d((2, 2, 3)), (4, 4, 6)),
    "Conv3d": (nn.Conv3d(3, 4, 3, (1, 2, 3), 1, 1, 1), (3, 8, 7)),
}


@pytest.mark.parametrize(("layer", "shape"), LAYERS.values(), ids=LAYERS)
def test_at_stride_one_a_layers_own_output_is_at_the_first_place_of_each_block(layer, shape):
    maps = torch.rand(2, 3, *shape)
    wanted = layer(maps)
    stage = Unstrided(layer, shape, tuple(wanted.shape[2:]))
    everywhere = stage(maps)
    found = everywhere[(..., *(slice(None, None, step) for step in stage.steps))]
    assert stage.out_shape(shape, 3) == tuple(wanted.shape[2:])
    assert stage.release() is layer
    torch.testing.assert_close(found, wanted)


def test_maps_of_another_size_are_pooled_by_an_operator_carried_there():
    model, data = network("wavenet"), loader("wavenet")
    fit = fp.ClosedFormPooling().fit(model, data, ["3", "7"], "after")
    fit.replace(model, on_resize="interpolate")
    assert model(torch.randn(2, 1, 244)).shape == (2, 3)


def test_a_stride_is_moved_behind_an_activation_and_back():
    model, (batch, _) = network("wavenet"), loader("wavenet")
    wanted = model(batch[0])
    name = fp.move_stride(model, batch[0], "3", behind="4")
    assert torch.equal(model(batch[0]), wanted)
    fit = fp.ClosedFormPooling().fit(model, [batch], name, "after")
    assert (fit.operator_.in_shape, fit.operator_.out_shape) == ((24,), (12,))
    fit.replace(model)
    fp.restore(model)
    assert torch.equal(fp.restore_stride(model)(batch[0]), wanted)


def test_fixed_and_random_poolings_take_a_layers_place_with_a_convolution_behind_them():
    model, (batch, _) = network("r3d"), loader("r3d")
    pool = fp.LinearPool3d.average((2, 3, 3), (1, 2, 2))
    done = fp.replace(model, {"5.conv1.0": pool})
    assert isinstance(done.changes[0].new.project, nn.Conv3d)
    mixed = MixingPool(fp.LinearPool3d.random((4, 10, 10), (4, 5, 5), 2), fp.ChannelMixing(3, 4, 2))
    fp.replace(model, {"0": mixed})
    assert model(batch[0]).shape == (20, 3)


def test_a_pooling_of_other_axes_is_refused_by_name():
    message = r"3: got a LinearPool2d for a Conv1d, wanted a LinearPool1d"
    with pytest.raises(ValueError, match=message):
        fp.replace(network("wavenet"), {"3": fp.LinearPool2d.average((23, 1), (12, 1), 2)})
    with pytest.raises(ValueError, match=r"in_shapes: got \(4, 4\) for 3, wanted \(L,\)"):
        fp.replace(
            network("wavenet"),
            {"3": fp.LinearPool1d.average((23,), (12,))},
            mode="after",
            in_shapes={"3": (4, 4)},
        )


def wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        conv_dim=(4, 4),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
        **SMALL,
    )
    return transformers.Wav2Vec2ForSequenceClassification(config)


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=8,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=8,
        num_mel_bins=6,
        max_source_positions=20,
        decoder_layers=1,
        decoder_attention_heads=2,
        classifier_proj_size=8,
        num_labels=3,
    )
    return transformers.WhisperForAudioClassification(config)


def videomae() -> nn.Module:
    config = transformers.VideoMAEConfig(
        image_size=8, patch_size=4, num_frames=4, tubelet_size=2, **SMALL
    )
    return transformers.VideoMAEForVideoClassification(config)


SMALL = {
    **{"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "num_labels": 3},
}
PUBLISHED = {
    "wav2vec2": (wav2vec2, "input_values", (200,), [(200,), (39,)]),
    "whisper": (whisper, "input_features", (6, 40), [(40,)]),
    "videomae": (videomae, "pixel_values", (4, 3, 8, 8), [(4, 8, 8)]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PUBLISHED)
def test_audio_and_video_networks_of_others_are_fitted_replaced_and_restored(name, mode):
    make, key, shape, maps = PUBLISHED[name]
    torch.manual_seed(0)
    model, labels = make().eval(), torch.arange(24) % 3
    data = [{key: torch.randn(24, *shape), "labels": labels}]
    example = {key: data[0][key][:2]}
    wanted = model(**example).logits
    found = fp.downsampling_layers(model, example)
    assert [each.in_shape for each in found] == maps and not found.unlisted
    fit = fp.ClosedFormPooling(components=2 if mode == "mix" else None)
    fit.fit(model, data, found, mode).replace(model)
    assert model(**example).logits.shape == wanted.shape
    fp.restore(model)
    assert torch.equal(model(**example).logits, wanted)


class Bottleneck1d(nn.Module):
    """Fewer channels at as many places, as codecs of audio have it; no tokens are merged."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Halves(nn.Module):
    """A gated activation: it cuts the numbers of each token into halves, and is no pooling."""

    def forward(self, tokens: Tensor) -> Tensor:
        content, gate = tokens.chunk(2, -1)
        return content * gate.sigmoid()


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(2), Halves()),
        nn.Sequential(nn.Flatten(2), nn.Linear(64, 16)),
        nn.Sequential(nn.Conv1d(3, 8, 9), Bottleneck1d(), nn.Flatten()),
    ],
    ids=["gated", "linear", "edges lost"],
)
def test_lines_that_are_no_maps_and_lost_edges_are_not_listed(network):
    shape = (2, 3, 64) if isinstance(network[0], nn.Conv1d) else (2, 3, 8, 8)
    found = fp.downsampling_layers(network, torch.randn(shape))
    assert not found and not found.unlisted


def test_an_image_without_a_batch_is_no_line():
    assert not fp.downsampling_layers(nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1)), torch.ones(3, 8, 8))
