"""A script as people publish them: a recurrent language model, trained with clipped gradients and a falling rate.

    published_language_model.py [--compile] [--weights FILE]

In: initial weights. Out: a line `epoch E loss L lr R` an epoch.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, tokens, size, layers):
        super().__init__()
        self.encoder = nn.Embedding(tokens, size)
        self.rnn = nn.LSTM(size, size, layers)
        self.decoder = nn.Linear(size, tokens)
        self.decoder.weight = self.encoder.weight
        self.size, self.layers = size, layers

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(self.layers, batch, self.size), weight.new_zeros(self.layers, batch, self.size)


def batchify(data, batch):
    steps = data.size(0) // batch
    return data.narrow(0, 0, steps * batch).view(batch, -1).t().contiguous()


def repackage(hidden):
    return tuple(h.detach() for h in hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--weights")
    args = parser.parse_args()
    torch.manual_seed(1111)
    text = "the quick brown fox jumps over the lazy dog. " * 12
    vocabulary = {c: i for i, c in enumerate(sorted(set(text)))}
    data = batchify(torch.tensor([vocabulary[c] for c in text]), 4)
    model = RNNModel(len(vocabulary), 24, 2)
    if args.weights:
        with np.load(args.weights) as weights:
            model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})
    step = torch.compile(model) if args.compile else model
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    for epoch in range(1, 5):
        model.train()
        start, total, count = time.time(), 0.0, 0
        hidden = model.init_hidden(4)
        for i in range(0, data.size(0) - 16, 15):
            inputs, targets = data[i : i + 15], data[i + 1 : i + 16].reshape(-1)
            hidden = repackage(hidden)
            optimizer.zero_grad(set_to_none=True)
            output, hidden = step(inputs, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            total, count = total + loss.item(), count + 1
        scheduler.step()
        assert time.time() >= start
        assert math.isfinite(total)
        print(f"epoch {epoch} loss {total / count:.5f} lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
