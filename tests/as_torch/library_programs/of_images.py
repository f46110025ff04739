"""Libraries of images and attention: torchvision, timm, kornia, segmentation models, CLIP, transformers by parts."""

from __future__ import annotations

import numpy as np
import torch
from library_common import Found, classes, draw, steps, with_weights
from torch import nn


def features(mode: str) -> Found:
    """torchvision: intermediate values of a ResNet by its feature extraction, which traces it, trained."""
    from torchvision.models import resnet18
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    net = with_weights(resnet18(weights=None, num_classes=5).double())
    names, _ = get_graph_node_names(net)
    parts = create_feature_extractor(net, {"layer1.0.relu_1": "early", "layer3": "late", "fc": "out"})
    x = draw(4, 3, 48, 48)

    def loss(m: nn.Module) -> torch.Tensor:
        found = m(x)
        return found["early"].square().mean() + found["late"].square().mean() + found["out"].square().mean()

    return steps(parts, loss, mode, lr=1e-4) | {"names": np.array(names)}


def transforms(mode: str) -> Found:
    """torchvision's transforms of tensors, the second kind too."""
    from torchvision.transforms import functional as old
    from torchvision.transforms import v2

    x = draw(2, 3, 16, 16).sigmoid()
    found = {
        "resized": old.resize(x, [9, 11], antialias=True), "turned": old.rotate(x, 30.0),
        "cut": old.center_crop(x, [5, 6]), "gray": old.rgb_to_grayscale(x), "blurred": old.gaussian_blur(x, [3, 3]),
        "bright": old.adjust_brightness(x, 1.3), "hue": old.adjust_hue(x, 0.1),
        "v2": v2.Compose([v2.CenterCrop(12), v2.Normalize([0.5] * 3, [0.2] * 3), v2.Pad(2)])(x),
    }  # fmt: skip
    return {name: value.numpy() for name, value in found.items()}


def kornia(mode: str) -> Found:
    """kornia: augmentation with given parameters, filters, colours, geometry; gradients through them."""
    import kornia.augmentation as augmentation
    from kornia import color, filters, geometry, losses

    x = draw(2, 3, 12, 12).sigmoid().requires_grad_()
    flip, jitter = augmentation.RandomHorizontalFlip(p=1.0), augmentation.RandomAffine(15.0, p=1.0)
    given = {
        "angle": torch.tensor([10.0, -5.0]), "translations": torch.zeros(2, 2), "center": torch.full((2, 2), 5.5),
        "scale": torch.ones(2, 2), "shear_x": torch.zeros(2), "shear_y": torch.zeros(2),
        "batch_prob": torch.ones(2), "forward_input_shape": torch.tensor([2, 3, 12, 12]),
    }  # fmt: skip
    given = {name: value.double() if value.is_floating_point() else value for name, value in given.items()}
    found = {
        "flipped": flip(x), "moved": jitter(x, params=given), "blurred": filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)),
        "edges": filters.sobel(x), "median": filters.median_blur(x, (3, 3)), "lab": color.rgb_to_lab(x),
        "hsv": color.rgb_to_hsv(x), "turned": geometry.rotate(x, torch.tensor([20.0, 40.0], dtype=torch.float64)),
        "pyramid": geometry.pyrdown(x), "warped": geometry.warp_perspective(
            x, torch.eye(3, dtype=torch.float64)[None].repeat(2, 1, 1) + 0.01, (10, 10)),
    }  # fmt: skip
    loss = sum(value.square().mean() for value in found.values())
    loss = loss + losses.ssim_loss(x, x.detach().roll(1, 3), 5) + losses.total_variation(x).mean()
    loss.backward()
    return {name: value.detach().numpy() for name, value in found.items()} | {
        "loss": loss.detach().numpy(),
        "g.x": x.grad.numpy(),
    }


def classified(net: nn.Module, x: torch.Tensor, count: int, mode: str) -> Found:
    """Steps of a classifier."""
    labels = classes(count, x.shape[0])
    return steps(with_weights(net.double()), lambda m: nn.functional.cross_entropy(m(x), labels), mode)


def timm(mode: str) -> Found:
    """timm: a small vision transformer and a ConvNeXt, with their optimizers' groups and feature extraction."""
    import timm
    from timm.optim import create_optimizer_v2

    vit = timm.create_model("test_vit", num_classes=5, img_size=32)
    found = classified(vit, draw(2, 3, 32, 32), 5, mode)
    backbone = timm.create_model("test_convnext", features_only=True).double()
    maps = with_weights(backbone)(draw(1, 3, 64, 64))
    optimizer = create_optimizer_v2(vit, "adamw", lr=0.1, weight_decay=0.1)
    return (
        found
        | {f"map{i}": m.detach().numpy() for i, m in enumerate(maps)}
        | {"groups": np.array([len(g["params"]) for g in optimizer.param_groups])}
    )


def segmentation(mode: str) -> Found:
    """segmentation_models_pytorch: a U-Net, its Dice loss and its scores."""
    import segmentation_models_pytorch as smp

    net = with_weights(
        smp.Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(16, 8, 8), classes=2).double()
    )
    x, masks = draw(2, 3, 32, 32), classes(2, 2, 32, 32)
    dice = smp.losses.DiceLoss("multiclass")
    found = steps(net, lambda m: dice(m(x), masks), mode)
    tp, fp, fn, tn = smp.metrics.get_stats(net(x).argmax(1), masks, mode="multiclass", num_classes=2)
    return found | {"iou": smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro").numpy()}


def clip(mode: str) -> Found:
    """open_clip: images against texts, with its contrastive loss."""
    from open_clip import ClipLoss
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    net = CLIP(
        16, CLIPVisionCfg(layers=1, width=32, head_width=16, patch_size=8, image_size=16),
        CLIPTextCfg(context_length=8, vocab_size=64, width=16, heads=2, layers=1),
    )  # fmt: skip
    net = with_weights(net.double())
    images, texts, loss = draw(3, 3, 16, 16), classes(64, 3, 8), ClipLoss()
    return steps(net, lambda m: loss(*m(images, texts)), mode)


def vit(mode: str) -> Found:
    """vit_pytorch: the plain one."""
    from vit_pytorch import ViT

    net = ViT(image_size=16, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32, dim_head=8)
    return classified(net, draw(2, 3, 16, 16), 5, mode)


def x_transformer(mode: str) -> Found:
    """x_transformers: an autoregressive decoder with rotary positions and RMSNorm."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    inner = Decoder(dim=32, depth=1, heads=2, attn_dim_head=16, rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True)
    net = AutoregressiveWrapper(TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=inner))
    ids = classes(64, 2, 12)
    return steps(with_weights(net.double()), lambda m: m(ids), mode)


PROGRAMS = {
    "torchvision": features, "transforms": transforms, "kornia": kornia, "timm": timm, "segmentation": segmentation,
    "open_clip": clip, "vit_pytorch": vit, "x_transformers": x_transformer,
}  # fmt: skip
