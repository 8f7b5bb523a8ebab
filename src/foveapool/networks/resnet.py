"""The paper's pre-activation ResNet-18 for small images, and the ways to put a pooling into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.networks.sites import (
    AFTER,
    LAYERS,
    MAIN,
    SHORTCUT,
    PoolingChoice,
    Poolings,
    PoolingSite,
    check_form,
    check_placement,
    check_sizes,
    count_components,
    index_choices,
    list_paths,
    make_site,
)
from foveapool.pooling.mixing import ChannelMixing, MixingPool

# The module of a block whose input a pooling of form `replace` reads; "" is the block itself.
_REPLACED = {"both": "conv1", "before": "", "main": "conv1", "shortcut": "shortcut"}


class PreActBlock(nn.Module):
    """Batch-norm, ReLU and convolution, twice, beside a shortcut.

    He et al. 2016, "Identity Mappings in Deep Residual Networks".

    A pooling in a block that halves its maps stands there in one of the forms of
    `networks/sites.py` and in one of four places. In form `replace`: `both`, one pooled map
    feeds the main path and is the shortcut; `before`, the block's input is pooled, and the block
    is an ordinary one without a stride; `main` and `shortcut`, instead of the 3 x 3 and of the
    1 x 1 convolution only. In the other forms `main`, `shortcut` and `both` mean the paths: in
    the shortcut the pooling stands before the 1 x 1 convolution, which has stride 1 then.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int = 1,
        choice: PoolingChoice | None = None,
        components: int = 1,
    ) -> None:
        super().__init__()
        form = None if choice is None else choice.form
        placement = None if choice is None else choice.placement
        pooling = None if choice is None else choice.pooling
        self.form = form
        self.before = pooling if placement == "before" else None
        self.shares_pooled_map = form == "replace" and placement == "both"
        self.main_pool: nn.Module | None = None
        self.shortcut_pool: nn.Module | None = None
        stride = 1 if placement == "before" else stride
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1: nn.Module = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        if pooling is not None and placement in ("both", "main"):
            if form == "replace":
                self.conv1 = pooling
            elif form == "mix":
                mixing = ChannelMixing(inputs, outputs, components)
                self.conv1 = MixingPool(pooling, mixing)
            else:
                self.conv1 = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
                self.main_pool = pooling
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut: nn.Module | None = None
        if form == "replace" and placement == "shortcut":
            self.shortcut = pooling
        elif choice is not None and SHORTCUT in list_paths(choice.form, placement):
            self.shortcut_pool = pooling if placement == "shortcut" else choice.shortcut
            given = inputs * (components if placement == "shortcut" else 1)
            self.shortcut = nn.Conv2d(given, outputs, 1, bias=False)
        elif not self.shares_pooled_map and (stride != 1 or inputs != outputs):
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        # Poolings that choose what they keep have to choose alike in both paths.
        both = self.main_pool is not None and self.shortcut_pool is not None
        self.shares_choice = both and hasattr(self.main_pool, "choose")

    def forward(self, maps: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        if self.before is not None:
            maps = self.before(maps)
        active = F.relu(self.norm1(maps))
        main = self.conv1(active)
        chosen: tuple[Tensor, ...] = ()
        if self.form == "after" and self.main_pool is not None:
            chosen = self._choose_phases(main)
            main = self.main_pool(main, *chosen)
        shortcut = main if self.shares_pooled_map else None
        main = F.relu(self.norm2(main))
        if self.form == "after-activation" and self.main_pool is not None:
            chosen = self._choose_phases(main)
            main = self.main_pool(main, *chosen)
        main = self.conv2(main)
        if shortcut is None:
            shortcut = maps if self.shortcut is None else self._run_shortcut(active, chosen)
        return main + shortcut

    def _choose_phases(self, maps: Tensor) -> tuple[Tensor, ...]:
        """What the main path's pooling keeps, for both paths; nothing where none chooses."""
        return (self.main_pool.choose(maps),) if self.shares_choice else ()  # type: ignore[union-attr, operator]

    def _run_shortcut(self, active: Tensor, chosen: tuple[Tensor, ...]) -> Tensor:
        assert self.shortcut is not None, "asked for only where there is one"
        if self.shortcut_pool is not None:
            active = self.shortcut_pool(active, *chosen)
        return self.shortcut(active)


class PreActResNet18(nn.Module):
    """Eight pre-activation blocks of `width`, 2, 4 and 8 `width` channels, two of each.

    The pooling layers 1, 2, 3 are the blocks that halve the maps: `layer2.0`, `layer3.0`,
    `layer4.0`. See `PreActBlock` for what a pooling can be there.

    Args:
        classes: The number of logits.
        width: The channels of the first convolution.
        poolings: A `PoolingChoice` a layer, or {layer: module} for form `replace`.
        placement: Where in a block, for choices that do not say.
        final_norm: Whether batch-norm and ReLU stand before the last average, as the paper on
            pre-activation has them; the implementation that the pooling paper names leaves them
            out.
        in_channels: The images' channels.
        in_shape: Their height and width.

    >>> import torch
    >>> network = PreActResNet18(width=4)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> network.site(2, placement="shortcut").module
    'layer3.0.shortcut'
    """

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        poolings: Poolings | None = None,
        placement: str = "both",
        final_norm: bool = True,
        in_channels: int = 3,
        in_shape: Sequence[int] = (32, 32),
    ) -> None:
        super().__init__()
        check_sizes(classes, width, in_channels, in_shape)
        check_placement(placement)
        self.width, self.in_shape, self.placement = width, (in_shape[0], in_shape[1]), placement
        choices = {
            layer: replace(choice, placement=choice.placement or placement)
            for layer, choice in index_choices(poolings).items()
        }
        # All of them before anything is built.
        components = {layer: self._count_components(each) for layer, each in choices.items()}
        self.pooling_modules = tuple(
            name for choice in choices.values() for name in _list_names_in(choice)
        )
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.layer1 = nn.Sequential(PreActBlock(width, width), PreActBlock(width, width))
        self.layer2, self.layer3, self.layer4 = (
            self._make_stage(layer, choices.get(layer), components.get(layer, 1))
            for layer in LAYERS
        )
        self.norm = nn.BatchNorm2d(8 * width) if final_norm else None
        self.head = nn.Linear(8 * width, classes)

    def _make_stage(
        self, layer: int, choice: PoolingChoice | None, components: int
    ) -> nn.Sequential:
        """The two blocks of which the first halves its maps."""
        inputs = channels = self.width * 2 ** (layer - 1)
        if choice is not None and choice.placement == "before":
            inputs = components * channels
        first = PreActBlock(inputs, 2 * channels, 2, choice, components)
        return nn.Sequential(first, PreActBlock(2 * channels, 2 * channels))

    def _count_components(self, choice: PoolingChoice) -> int:
        """Those of a choice's pooling; refuses one that does not fit, in either path."""
        layer, form, placement = choice.layer, choice.form, choice.placement
        own = list_paths(form, placement)
        mixed = form != "replace" and own[0] == SHORTCUT
        any_number = placement == "before" or form == "mix" or mixed
        site = self.site(layer, placement, form, own[0])
        components = count_components(choice.pooling, site, any_number)
        if (choice.shortcut is not None) != (len(own) == 2):
            raise ValueError(
                f"poolings[{layer}]: got {'no' if choice.shortcut is None else 'a'} pooling for "
                f"the shortcut in form {form!r}, placement {placement!r}, wanted one exactly where "
                "both paths have a pooling of their own: forms mix and after, placement both"
            )
        if choice.shortcut is not None:
            short = self.site(layer, placement, form, SHORTCUT)
            count_components(choice.shortcut, short, any_number=False)
        return components

    def site(
        self, layer: int, placement: str | None = None, form: str = "replace", path: str = MAIN
    ) -> PoolingSite:
        """What a pooling at that layer meets, in this network's placement or another one.

        `path` tells the two poolings of a block apart, where each path has its own.
        """
        placement = placement or self.placement
        check_form(form)
        check_placement(placement, form)
        block = f"layer{layer + 1}.0"
        name = _REPLACED[placement]
        if form != "replace":
            name = "conv1" if path == MAIN and placement != SHORTCUT else "shortcut"
        site = make_site(layer, f"{block}.{name}".rstrip("."), self.width, self.in_shape)
        if form == "replace":
            return site
        if name == "shortcut":
            module = f"{block}.shortcut" + ("_pool" if form in AFTER else "")
            return replace(site, components=1, module=module)
        if form == "mix":
            return replace(site, components=9)
        module = f"{block}.main_pool"
        return replace(site, module=module, channels=2 * site.channels, components=1)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (B, classes) of images (B, in_channels, H, W)."""
        maps = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(images)))))
        if self.norm is not None:
            maps = F.relu(self.norm(maps))
        return self.head(maps.mean((2, 3)))


def _list_names_in(choice: PoolingChoice) -> list[str]:
    """What the poolings of a choice are called in the network."""
    block = f"layer{choice.layer + 1}.0"
    if choice.form == "replace":
        name = "before" if choice.placement == "before" else _REPLACED[choice.placement or "both"]
        return [f"{block}.{name}"]
    own = {MAIN: "conv1.pool" if choice.form == "mix" else "main_pool", SHORTCUT: "shortcut_pool"}
    return [f"{block}.{own[path]}" for path in list_paths(choice.form, choice.placement)]
