"""The layers around convolution, pooling and resampling: torch's printed forms, keys, shapes and results."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import ShapeError
from distcompile.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "conv1d": (lambda nn: nn.Conv1d(3, 4, 3, 2, 1), (2, 3, 9)),
    "conv2d": (lambda nn: nn.Conv2d(4, 6, (3, 2), dilation=2, groups=2, bias=False), (2, 4, 9, 8)),
    "conv2d_circular": (lambda nn: nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="circular"), (2, 3, 6, 5)),
    "conv2d_same_reflect": (lambda nn: nn.Conv2d(3, 4, (4, 3), padding="same", padding_mode="reflect"), (3, 6, 5)),
    "conv3d": (lambda nn: nn.Conv3d(2, 4, 2, padding="valid"), (1, 2, 4, 5, 3)),
    "transpose1d": (lambda nn: nn.ConvTranspose1d(3, 4, 3, 2, output_padding=1), (2, 3, 5)),
    "transpose2d": (lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=2), (2, 4, 5, 4)),
    "transpose3d": (lambda nn: nn.ConvTranspose3d(2, 3, 2, bias=False), (1, 2, 3, 2, 3)),
    "max1d": (lambda nn: nn.MaxPool1d(2), (2, 3, 9)),
    "max2d": (lambda nn: nn.MaxPool2d(3, 2, 1, 2, ceil_mode=True), (2, 3, 9, 9)),
    "max3d": (lambda nn: nn.MaxPool3d((1, 2, 2)), (1, 2, 4, 5, 6)),
    "avg1d": (lambda nn: nn.AvgPool1d(3, 1, 1, count_include_pad=False), (2, 3, 9)),
    "avg2d": (lambda nn: nn.AvgPool2d((3, 2), divisor_override=4), (2, 3, 9, 9)),
    "avg3d": (lambda nn: nn.AvgPool3d(2, ceil_mode=True), (1, 2, 4, 5, 6)),
    "lp1d": (lambda nn: nn.LPPool1d(2, 3), (2, 3, 9)),
    "lp2d": (lambda nn: nn.LPPool2d(2, 3, stride=2), (2, 3, 9, 9)),
    "lp3d": (lambda nn: nn.LPPool3d(2, 2), (1, 2, 4, 5, 6)),
    "adaptive_avg": (lambda nn: nn.AdaptiveAvgPool2d((None, 4)), (2, 3, 9, 9)),
    "adaptive_max": (lambda nn: nn.AdaptiveMaxPool1d(4), (2, 3, 9)),
    "fold": (lambda nn: nn.Fold((4, 5), 2, padding=1, stride=2), (2, 12, 9)),
    "unfold": (lambda nn: nn.Unfold((2, 3), stride=2), (2, 3, 6, 7)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=(2, 1.5), mode="bicubic"), (2, 3, 4, 6)),
    "upsample_size": (lambda nn: nn.Upsample(size=(3, 7)), (2, 3, 4, 6)),
    "upsampling_bilinear": (lambda nn: nn.UpsamplingBilinear2d(scale_factor=2), (2, 3, 4, 6)),
    "upsampling_nearest": (lambda nn: nn.UpsamplingNearest2d((8, 9)), (2, 3, 4, 6)),
    "pixel_shuffle": (lambda nn: nn.PixelShuffle(2), (2, 8, 3, 4)),
    "pixel_unshuffle": (lambda nn: nn.PixelUnshuffle(2), (2, 2, 6, 4)),
    "channel_shuffle": (lambda nn: nn.ChannelShuffle(3), (2, 6, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_form_keys_and_result_are_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    mine, want = make(dc.nn), make(torch.nn)
    assert repr(mine) == repr(want)
    assert [(k, tuple(v.shape)) for k, v in mine.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in want.state_dict().items()
    ]
    mine.load_state_dict(want.state_dict())
    x = RNG.standard_normal(shape).astype(np.float32)
    got, expected = mine(dc.tensor(x)), want(torch.tensor(x))
    assert tuple(got.shape) == tuple(expected.shape)
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_pooling_and_unpooling_pass_places_on() -> None:
    x = RNG.standard_normal((2, 3, 7, 6)).astype(np.float32)

    def roundtrip(library: Any) -> Any:
        values, places = library.nn.MaxPool2d(2, return_indices=True)(library.tensor(x))
        return library.nn.MaxUnpool2d(2)(values, places, output_size=(7, 6)).numpy()

    np.testing.assert_array_equal(roundtrip(dc), roundtrip(torch))


def test_a_transposed_layer_takes_the_size_of_its_output() -> None:
    for library in (dc, torch):
        layer = library.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
        assert tuple(layer(library.ones(1, 2, 4, 4), output_size=(8, 7)).shape) == (1, 3, 8, 7)
    with pytest.raises(ShapeError, match="output size"):
        dc.nn.ConvTranspose2d(2, 3, 3, stride=2)(dc.ones(1, 2, 4, 4), output_size=(99, 9))


def test_weights_are_drawn_from_torchs_range() -> None:
    layer = dc.nn.Conv2d(8, 32, 3, groups=2)
    bound = 1 / (4 * 9) ** 0.5
    for parameter in (layer.weight, layer.bias):
        values = parameter.detach().numpy()
        assert 0.8 * bound < np.abs(values).max() <= bound


def test_arguments_that_exclude_each_other_are_named() -> None:
    for bad in (
        lambda: dc.nn.FractionalMaxPool2d(2),
        lambda: dc.nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5),
        lambda: dc.nn.FractionalMaxPool3d(2, output_ratio=1.5),
        lambda: dc.nn.Conv2d(3, 4, 3, padding="full"),
        lambda: dc.nn.Conv2d(3, 4, 3, 2, padding="same"),
        lambda: dc.nn.Conv2d(3, 4, 3, padding_mode="mirror"),
    ):
        with pytest.raises(ArgumentError):
            bad()


@pytest.mark.parametrize(
    "name", ["ReLU", "ReLU6", "SiLU", "Hardswish", "Hardsigmoid", "LeakyReLU", "ELU", "SELU", "Mish"]
)
def test_an_activation_in_place_of_a_value_that_its_gradient_needs(name: str) -> None:
    """As convolutional networks have them, behind a normalisation: `SiLU(inplace=True)`."""
    x = RNG.standard_normal((3, 4)).astype(np.float32)

    def gradient(library: Any) -> Any:
        leaf = library.tensor(x).requires_grad_()
        getattr(library.nn, name)(inplace=True)(leaf * 1.5).sum().backward()
        return leaf.grad.numpy()

    np.testing.assert_allclose(gradient(dc), gradient(torch), rtol=1e-5, atol=1e-6)


def test_the_size_helpers_that_model_files_import() -> None:
    utils = importlib.import_module("distcompile.nn.modules.utils")
    theirs = torch.nn.modules.utils
    for name in ("_single", "_pair", "_triple", "_quadruple"):
        for value in (3, (1, 2), [4]):
            assert getattr(utils, name)(value) == getattr(theirs, name)(value)
    assert utils._ntuple(5)(1) == (1,) * 5
    assert list(utils._reverse_repeat_tuple((1, 2), 2)) == list(theirs._reverse_repeat_tuple((1, 2), 2))


def test_a_subclass_may_use_the_words_that_our_families_are_told_apart_by() -> None:
    """LoRA layers, for one, keep their `rank`: it is no name of torch's layers."""
    words = {"rank": 8, "spatial": 9, "dims": 7, "shown": ("x",), "mode": "mine"}
    for name, shape in {"Conv2d": (1, 2, 5, 5), "MaxPool2d": (1, 2, 4, 4), "ZeroPad2d": (1, 2, 3, 3),
                        "BatchNorm2d": (2, 2, 3, 3), "InstanceNorm2d": (1, 2, 3, 3), "ELU": (3,)}.items():  # fmt: skip
        layer = getattr(dc.nn, name)
        arguments = {"Conv2d": (2, 2, 3), "ELU": ()}.get(name, (2,))
        plain, worded = layer(*arguments), type(name, (layer,), {})(*arguments)
        for word, value in words.items():
            setattr(worded, word, value)
        worded.load_state_dict(plain.state_dict())
        x = dc.ones(*shape)
        assert repr(worded) == repr(plain)
        np.testing.assert_array_equal(worded(x).detach().numpy(), plain(x).detach().numpy())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda F: F.conv2d(dc.ones(1, 1, 3, 3)), r"^conv2d\(\) missing a required argument: 'weight'"),
        (lambda F: F.conv3d(dc.ones(1), dc.ones(1), nope=1), r"^conv3d\(\) got an unexpected .* 'nope'"),
        (lambda F: F.max_pool1d(), r"^max_pool1d\(\) missing a required argument: 'input'"),
    ],
)
def test_a_call_that_does_not_fit_is_told_by_the_function_that_was_called(call: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(dc.nn.functional)
    with dc.autocast("cpu"), pytest.raises(TypeError, match=says):
        call(dc.nn.functional)
