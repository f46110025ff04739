"""Small models of transformers, trained by torch or by distcompile: the script of test_transformers.py.

    transformers_models.py FOLDER SIDES MODEL...     SIDES: torch (which also saves the weights), or eager,compiled

In: for eager and compiled, FOLDER/MODEL, as `save_pretrained` of torch's run left it. Out: FOLDER/MODEL:SIDE.npz with
the loss, the logits, every gradient `g.name`, the losses of five steps of AdamW, and for decoders what `generate` says.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from library_common import provide_torchvisions_operators

SMALL: dict[str, Any] = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "vocab_size": 96, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0,
    }),
    "bert": ("BertForMaskedLM", "BertConfig", {
        **SMALL, "intermediate_size": 64, "max_position_embeddings": 32, "hidden_dropout_prob": 0,
        "attention_probs_dropout_prob": 0,
    }),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {
        **SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 32,
    }),
    "t5": ("T5ForConditionalGeneration", "T5Config", {
        "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0,
        "decoder_start_token_id": 0,
    }),
}  # fmt: skip
DECODERS = ("gpt2", "llama")


def made(folder: Path, side: str, name: str) -> Any:
    """The model: torch's with new weights, saved; ours with those, by way of a safetensors file each time."""
    cls, config, settings = MODELS[name]
    model_class = getattr(transformers, cls)
    if side == "torch":
        torch.manual_seed(0)
        model = model_class(getattr(transformers, config)(**settings))
        model.save_pretrained(folder / name)
        return model
    model = model_class.from_pretrained(folder / name)
    again = folder / f"{name}.{side}"
    model.save_pretrained(again)
    return model_class.from_pretrained(again)


def batch() -> dict[str, Any]:
    """Ids, labels and a mask that hides the end of the second row: i64[2, 12] each."""
    draw = np.random.default_rng(0)
    mask = np.ones((2, 12), np.int64)
    mask[1, 9:] = 0
    ids, labels = (draw.integers(1, 96, (2, 12)) for _ in range(2))
    arrays = {"input_ids": ids, "labels": labels, "attention_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def trained(folder: Path, side: str, name: str) -> dict[str, Any]:
    """One step's loss, logits and gradients, then five steps' losses, then what greedy decoding says."""
    model = made(folder, side, name)
    model.train()
    step = torch.compile(model, fullgraph=True) if side == "compiled" else model
    inputs = batch()
    output = step(**inputs)
    output.loss.backward()
    found = {"loss": output.loss.detach().numpy(), "logits": output.logits.detach().numpy()}
    found |= {f"g.{key}": p.grad.detach().numpy().copy() for key, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = step(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    found["losses"] = np.array(losses)
    if name in DECODERS and side != "compiled":
        model.eval()
        ids = inputs["input_ids"][:, :4]
        said = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0
        )
        found["said"] = said.numpy()
    return found


def main(folder: str, sides: str, *names: str) -> None:
    provide_torchvisions_operators()
    for side, name in itertools.product(sides.split(","), names):
        np.savez(Path(folder) / f"{name}:{side}.npz", **trained(Path(folder), side, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
