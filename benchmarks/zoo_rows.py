"""The rows of zoo.py: 40 published models, as torchvision, timm and transformers write them, with new weights.

In: nothing; a row imports its library when it is made. Out: `ROWS`: name -> Row. `full` is the published size, for a
GPU; the other is a small one of the same code: fewer layers and channels, as far as the library lets one choose.
`batch` gives what the model is called with, and the classes that its result is compared with; None: it tells its loss.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

Draw = np.random.Generator
Batch = tuple[dict[str, Any], Any]
CLASSES = 100


@dataclass(frozen=True)
class Row:
    """needs: packages. make, batch: of whether it is full. channels_last: on a GPU, as convolutions want it there."""

    needs: tuple[str, ...]
    make: Callable[[bool], Any]
    batch: Callable[[bool, Draw], Batch]
    channels_last: bool = False


# ---- images


def _images(name: str, pixels: int, batch: int, full_pixels: int, full_batch: int, full: bool, draw: Draw) -> Batch:
    side, count = (full_pixels, full_batch) if full else (pixels, batch)
    return {name: draw.standard_normal((count, 3, side, side), np.float32)}, draw.integers(0, CLASSES, count)


def vision(
    name: str, small: Callable[[Any], Any] | None = None, *, of: tuple[int, int, int, int] = (64, 8, 224, 128),
    first: str = "x", conv: bool = True,
) -> Row:  # fmt: skip
    """One of torchvision's. small: given torchvision.models, makes the small one. of: pixels and batch, both sizes."""

    def make(full: bool) -> Any:
        models = importlib.import_module("torchvision.models")
        if full or small is None:
            return models.get_model(name, weights=None, num_classes=CLASSES)
        return small(models)

    return Row(("torchvision",), make, partial(_images, first, *of), conv)


def timm(
    name: str, small: Callable[[Any], Any] | None = None, *, of: tuple[int, int, int, int] = (64, 8, 224, 128),
    first: str = "x", conv: bool = False, sized: bool = False, **options: Any,
) -> Row:  # fmt: skip
    """One of timm's. small: given timm.models, makes the small one; else `options` do. sized: it is told the pixels."""

    def make(full: bool) -> Any:
        library = importlib.import_module("timm")
        if small is not None and not full:
            return small(library.models)
        size = {"img_size": of[2 if full else 0]} if sized else {}
        return library.create_model(name, num_classes=CLASSES, **size, **({} if full else options))

    return Row(("timm", "torchvision"), make, partial(_images, first, *of), conv)


def _resnet(block: str, layers: list[int], **options: Any) -> Callable[[Any], Any]:
    return lambda m: m.ResNet(getattr(m.resnet, block), layers, num_classes=CLASSES, **options)


def _convnext(models: Any) -> Any:
    setting = models.convnext.CNBlockConfig
    stages = [setting(48, 96, 1), setting(96, 192, 2), setting(192, None, 1)]
    return models.ConvNeXt(stages, num_classes=CLASSES)


def _swin(models: Any) -> Any:
    return models.SwinTransformer([4, 4], 48, [2, 2], [3, 6], [4, 4], num_classes=CLASSES)


def _vit(models: Any) -> Any:
    return models.VisionTransformer(64, 8, 4, 4, 192, 768, num_classes=CLASSES)


def _mobilenet_v3(models: Any) -> Any:
    of = models.mobilenetv3.InvertedResidualConfig
    stages = [
        of(16, 3, 16, 16, True, "RE", 2, 1, 1), of(16, 3, 72, 24, False, "RE", 2, 1, 1),
        of(24, 5, 96, 40, True, "HS", 2, 1, 1), of(40, 5, 240, 40, True, "HS", 1, 1, 1),
    ]  # fmt: skip
    return models.MobileNetV3(stages, 256, num_classes=CLASSES)


def _mobilenet_v2(models: Any) -> Any:
    return models.MobileNetV2(CLASSES, inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]])


def _efficientnet(models: Any) -> Any:
    of = models.efficientnet.MBConvConfig
    stages = [of(1, 3, 1, 32, 16, 1), of(6, 3, 2, 16, 24, 2), of(6, 5, 2, 24, 40, 1)]
    return models.EfficientNet(stages, dropout=0.0, stochastic_depth_prob=0.0, num_classes=CLASSES, last_channel=256)


def _regnet(models: Any) -> Any:
    of = models.regnet.BlockParams.from_init_params(depth=6, w_0=48, w_a=27.89, w_m=2.09, group_width=8, se_ratio=0.25)
    return models.RegNet(of, CLASSES)


def _densenet(models: Any) -> Any:
    return models.DenseNet(16, (2, 3, 2), 32, num_classes=CLASSES)


def _shufflenet(models: Any) -> Any:
    return models.ShuffleNetV2([2, 3, 2], [24, 58, 116, 232, 256], CLASSES)


def _vgg(models: Any) -> Any:
    layers = models.vgg.make_layers([64, "M", 128, "M", 256, 256, "M"], batch_norm=True)
    network, nn = models.VGG(layers, CLASSES, init_weights=False), models.vgg.nn
    network.classifier = nn.Sequential(nn.Linear(256 * 49, 512), nn.ReLU(True), nn.Linear(512, CLASSES))
    return network


def _mixer(models: Any, **options: Any) -> Any:
    return models.MlpMixer(CLASSES, 64, patch_size=8, num_blocks=3, embed_dim=256, **options)


def _resmlp(models: Any) -> Any:
    parts = models.mlp_mixer
    return _mixer(models, mlp_ratio=4, block_layer=parts.ResBlock, norm_layer=parts.Affine)


def _poolformer(models: Any) -> Any:
    dims, norm = (32, 64, 128, 256), models.metaformer.GroupNorm1
    return models.MetaFormer(
        num_classes=CLASSES, depths=(1, 1, 1, 1), dims=dims, downsample_norm=None, mlp_bias=True, norm_layers=norm,
        mlp_act=models.metaformer.nn.GELU, layer_scale_init_values=1e-5, res_scale_init_values=None,
        use_mlp_head=False,
    )  # fmt: skip


def _segmentation(full: bool) -> Any:
    """The same for both sizes."""
    models = importlib.import_module("torchvision.models")
    return models.get_model("lraspp_mobilenet_v3_large", weights=None, weights_backbone=None, num_classes=21)


def _segments(full: bool, draw: Draw) -> Batch:
    count, side = (16, 512) if full else (2, 64)
    images = draw.standard_normal((count, 3, side, side), np.float32)
    return {"input": images}, draw.integers(0, 21, (count, side, side))


# ---- transformers


def _without_chance(config: Any) -> Any:
    """The configuration with every probability of a drop at 0, and those of its parts."""
    for name, value in list(vars(config).items()):
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif name.endswith("_config") and hasattr(value, "to_dict"):
            _without_chance(value)
    return config


def _configured(model: str, config: str, small: dict[str, Any], large: dict[str, Any], full: bool) -> Any:
    library = importlib.import_module("transformers")
    return getattr(library, model)(_without_chance(getattr(library, config)(**(large if full else small))))


def _tokens(vocabulary: int, of: tuple[int, int, int, int], labelled: int, full: bool, draw: Draw) -> Batch:
    batch, length = of[2:] if full else of[:2]
    ids = draw.integers(3, vocabulary, (batch, length))
    labels = draw.integers(0, labelled, batch) if labelled else ids
    return {"input_ids": ids, "labels": labels}, None


def text(
    model: str, config: str, small: dict[str, Any], large: dict[str, Any] | None = None, *,
    of: tuple[int, int, int, int] = (4, 128, 16, 512), labelled: int = 0,
) -> Row:  # fmt: skip
    """One of transformers'. large: of a GPU, beyond the library's defaults. of: batch and length, both sizes."""
    small = {"vocab_size": 1000, **small}
    make = partial(_configured, model, config, small, large or {})
    return Row(("transformers",), make, partial(_tokens, small["vocab_size"], of, labelled))


def other(model: str, config: str, small: dict[str, Any], large: dict[str, Any], batch: Any) -> Row:
    return Row(("transformers",), partial(_configured, model, config, small, large), batch)


def _speech(full: bool, draw: Draw) -> Batch:
    count, length = (16, 1500) if full else (2, 64)
    heard = draw.standard_normal((count, 80, 2 * length), np.float32)
    return {"input_features": heard, "labels": draw.integers(3, 1000, (count, 128 if full else 32))}, None


def _waves(full: bool, draw: Draw) -> Batch:
    count, length = (16, 80_000) if full else (2, 8_000)
    waves = draw.standard_normal((count, length), np.float32)
    return {"input_values": waves, "labels": draw.integers(0, 2, count)}, None


def _pairs(full: bool, draw: Draw) -> Batch:
    count, side, length = (128, 224, 77) if full else (8, 64, 32)
    ids = draw.integers(3, 900, (count, length))
    ids[:, -1] = 999  # the end of the text, at the highest number
    pixels = draw.standard_normal((count, 3, side, side), np.float32)
    return {"input_ids": ids, "pixel_values": pixels, "return_loss": True}, None


def _scenes(full: bool, draw: Draw) -> Batch:
    count, side = (16, 512) if full else (2, 64)
    pixels = draw.standard_normal((count, 3, side, side), np.float32)
    return {"pixel_values": pixels, "labels": draw.integers(0, 2, (count, side, side))}, None


WIDE: dict[str, Any] = {
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1024,
}  # fmt: skip
DECODER: dict[str, Any] = {**WIDE, "num_key_value_heads": 2, "max_position_embeddings": 512}
LARGE_DECODER: dict[str, Any] = {
    "vocab_size": 32_000, "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 2816, "max_position_embeddings": 2048,
}  # fmt: skip
TWO_TOWERS: dict[str, Any] = {
    "text_config": {**WIDE, "vocab_size": 1000, "max_position_embeddings": 77, "eos_token_id": 999},
    "vision_config": {**WIDE, "image_size": 64, "patch_size": 8},
    "projection_dim": 128,
}  # fmt: skip

ROWS: dict[str, Row] = {
    "resnet18": vision("resnet18", _resnet("BasicBlock", [1, 1, 1, 1]), of=(64, 8, 224, 256)),
    "resnet50": vision("resnet50", _resnet("Bottleneck", [1, 1, 1, 1])),
    "resnext50": vision("resnext50_32x4d", _resnet("Bottleneck", [1, 1, 1, 1], groups=32, width_per_group=4)),
    "vgg11_bn": vision("vgg11_bn", _vgg),
    "densenet121": vision("densenet121", _densenet),
    "mobilenet_v2": vision("mobilenet_v2", _mobilenet_v2),
    "mobilenet_v3": vision("mobilenet_v3_large", _mobilenet_v3),
    "efficientnet_b0": vision("efficientnet_b0", _efficientnet),
    "regnet_y": vision("regnet_y_3_2gf", _regnet),
    "shufflenet_v2": vision("shufflenet_v2_x1_0", _shufflenet),
    "squeezenet": vision("squeezenet1_1"),
    "convnext": vision("convnext_tiny", _convnext),
    "swin": vision("swin_t", _swin, of=(64, 8, 224, 64), conv=False),
    "vit": vision("vit_b_16", _vit, conv=False),
    "lraspp": Row(("torchvision",), _segmentation, _segments, True),
    "deit3": timm("deit3_small_patch16_224", sized=True, patch_size=8, depth=3),
    "mixer": timm("mixer_s16_224", _mixer),
    "resmlp": timm("resmlp_12_224", _resmlp),
    "convnextv2": timm("convnextv2_tiny", conv=True, depths=(1, 1, 1, 1), dims=(32, 64, 128, 256)),
    "cait": timm("cait_xxs24_224", sized=True, patch_size=8, depth=3),
    "xcit": timm("xcit_tiny_12_p16_224", sized=True, depth=2, of=(128, 8, 224, 128)),
    "mobilevit": timm("mobilevit_xxs", conv=True, of=(64, 4, 256, 128)),
    "edgenext": timm("edgenext_x_small", conv=True, depths=(1, 1, 2, 1), of=(64, 8, 256, 128)),
    "poolformer": timm("poolformer_s12", _poolformer, conv=True),
    "ghostnet": timm("ghostnet_100", lambda m: m.ghostnet_050(num_classes=CLASSES), conv=True, of=(64, 4, 224, 128)),
    "nf_resnet": timm("nf_resnet50", lambda m: m.nf_resnet26(num_classes=CLASSES), conv=True),
    "eva02": timm("eva02_small_patch14_224", sized=True, patch_size=8, depth=3),
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "bert": text("BertForMaskedLM", "BertConfig", WIDE),
    "albert": text("AlbertForSequenceClassification", "AlbertConfig", {**WIDE, "embedding_size": 64},
                   {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, labelled=2),
    "deberta": text("DebertaV2ForSequenceClassification", "DebertaV2Config",
                    {**WIDE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32},
                    {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                     "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256}, labelled=2),
    "t5": text("T5ForConditionalGeneration", "T5Config",
               {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
               {"decoder_start_token_id": 0}, of=(4, 64, 16, 512)),
    "bart": text("BartForConditionalGeneration", "BartConfig",
                 {"d_model": 256, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
                  "decoder_attention_heads": 4, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024,
                  "max_position_embeddings": 128},
                 {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
                  "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
                 of=(4, 64, 16, 512)),
    "llama": text("LlamaForCausalLM", "LlamaConfig", DECODER, LARGE_DECODER, of=(4, 128, 8, 1024)),
    "gemma2": text("Gemma2ForCausalLM", "Gemma2Config", {**DECODER, "head_dim": 64},
                   {**LARGE_DECODER, "head_dim": 64}, of=(4, 128, 8, 1024)),
    "mixtral": text("MixtralForCausalLM", "MixtralConfig", {**DECODER, "num_local_experts": 4},
                    {**LARGE_DECODER, "num_hidden_layers": 6, "num_local_experts": 8}, of=(2, 64, 8, 512)),
    "clip": other("CLIPModel", "CLIPConfig", TWO_TOWERS, {}, _pairs),
    "whisper": other("WhisperForConditionalGeneration", "WhisperConfig",
                     {"vocab_size": 1000, "d_model": 256, "encoder_layers": 1, "decoder_layers": 1,
                      "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 1024,
                      "decoder_ffn_dim": 1024, "max_source_positions": 64, "pad_token_id": 0, "bos_token_id": 1,
                      "eos_token_id": 2, "decoder_start_token_id": 1}, {}, _speech),
    "wav2vec2": other("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config",
                      {**WIDE, "conv_dim": (64,) * 7, "num_conv_pos_embeddings": 16, "apply_spec_augment": False,
                       "num_conv_pos_embedding_groups": 4}, {"apply_spec_augment": False}, _waves),
    "segformer": other("SegformerForSemanticSegmentation", "SegformerConfig", {"depths": [1, 1, 1, 1]}, {}, _scenes),
}  # fmt: skip
