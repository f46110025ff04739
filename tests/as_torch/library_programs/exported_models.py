"""Models of torchvision, timm and transformers, exported, saved and compiled ahead of time; and what was saved, run.

    exported_models.py make FOLDER NAME...     each model's NAME.dcpt, NAME.dcpkg, and NAME.npz: arguments and results
    exported_models.py run FOLDER NAME...      in another process: both give these results

A line each: `NAME ok`, or what failed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {}


def image(size: int) -> dict[str, Any]:
    return {"x": torch.randn(2, 3, size, size)}


def vision(name: str, size: int = 64, **options: Any) -> None:
    def make() -> tuple[Any, dict[str, Any]]:
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10, **options), image(size)

    MODELS[f"torchvision_{name}"] = make


def pytorch_image_model(name: str, size: int = 64, **options: Any) -> None:
    def make() -> tuple[Any, dict[str, Any]]:
        import timm

        return timm.create_model(name, num_classes=10, **options), image(size)

    MODELS[f"timm_{name}"] = make


def transformer(name: str, config: str, inputs: Callable[[], dict[str, Any]], **options: Any) -> None:
    def make() -> tuple[Any, dict[str, Any]]:
        import transformers

        return getattr(transformers, name)(getattr(transformers, config)(**options)), inputs()

    MODELS[f"transformers_{name}"] = make


def text() -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 64, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.int64)}


def texts() -> dict[str, Any]:
    return {**text(), "decoder_input_ids": torch.randint(0, 64, (2, 7))}


for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf"):
    vision(name)
vision("efficientnet_b0")
vision("vit_b_16", 32, image_size=32)
for name in ("resnet10t", "convnext_atto", "mobilenetv3_small_050", "ghostnet_050"):
    pytorch_image_model(name)
pytorch_image_model("vit_tiny_patch16_224", 32, img_size=32)
pytorch_image_model("mixer_s32_224", 64, img_size=64)
SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
transformer("BertModel", "BertConfig", text, intermediate_size=64, **SMALL)
transformer("RobertaModel", "RobertaConfig", text, intermediate_size=64, **SMALL)
transformer("DistilBertModel", "DistilBertConfig", text, vocab_size=64, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
transformer("GPT2LMHeadModel", "GPT2Config", text, vocab_size=64, n_embd=32, n_layer=2, n_head=2, use_cache=False)
transformer(
    "LlamaForCausalLM", "LlamaConfig", text, intermediate_size=64, num_key_value_heads=1, use_cache=False, **SMALL
)
transformer(
    "T5Model",
    "T5Config",
    texts,
    vocab_size=64,
    d_model=32,
    d_kv=16,
    d_ff=64,
    num_layers=2,
    num_heads=2,
    use_cache=False,
)


def leaves(result: Any) -> list[Any]:
    found = torch.utils._pytree.tree_leaves(result)
    return [leaf.detach().numpy() for leaf in found if isinstance(leaf, torch.Tensor)]


def make(folder: Path, name: str) -> None:
    torch.manual_seed(0)
    model, kwargs = MODELS[name]()
    model.eval()
    args, kwargs = ((kwargs["x"],), {}) if "x" in kwargs else ((), kwargs)
    program = torch.export.export(model, args, kwargs)
    torch.export.save(program, folder / f"{name}.dcpt")
    torch._inductor.aoti_compile_and_package(program, package_path=folder / f"{name}.dcpkg")
    with torch.no_grad():
        results = leaves(model(*args, **kwargs))
    given = {"x": args[0]} if args else kwargs
    arrays = {f"in_{key}": value.numpy() for key, value in given.items()}
    np.savez(folder / f"{name}.npz", **arrays, **{f"out_{k}": array for k, array in enumerate(results)})


def run(folder: Path, name: str) -> None:
    if name.startswith("transformers_"):
        import transformers  # whose results are containers

        getattr(transformers, name.removeprefix("transformers_"))
    told = dict(np.load(folder / f"{name}.npz"))
    kwargs = {key[3:]: torch.from_numpy(value) for key, value in told.items() if key.startswith("in_")}
    args, kwargs = ((kwargs["x"],), {}) if "x" in kwargs else ((), kwargs)
    module = torch.export.load(folder / f"{name}.dcpt").module()
    package = torch._inductor.aoti_load_package(str(folder / f"{name}.dcpkg"))
    for what, callee in (("loaded", module), ("package", package)):
        with torch.no_grad():
            found = leaves(callee(*args, **kwargs))
        expected = [told[f"out_{k}"] for k in range(len(found))]
        assert f"out_{len(found)}" not in told, f"{what}: {len(found)} results"
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype, (what, a.dtype, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(b).max())), err_msg=what)


def main() -> None:
    action, folder, *names = sys.argv[1:]
    for name in names or MODELS:
        try:
            {"make": make, "run": run}[action](Path(folder), name)
            print(name, "ok", flush=True)
        except Exception as error:  # noqa: BLE001  told, so that one does not hide the others
            print(name, "FAILED", type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
            if names:
                traceback.print_exc()


if __name__ == "__main__":
    main()
