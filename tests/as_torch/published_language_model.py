"""A script as people publish them: a recurrent language model, with tied weights, trained by clipped gradients.

    published_language_model.py [--size N] [--bptt-steps N] [--compile] [--double]

Words are drawn from a grammar of a few rules. Out: a line `loss L` every few steps, of every epoch with its rate, and
words that the model draws.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, tokens, size, layers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(tokens, size)
        self.rnn = nn.LSTM(size, size, layers, dropout=dropout)
        self.decoder = nn.Linear(size, tokens)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.size, self.layers = size, layers

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.decoder.out_features)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(self.layers, batch, self.size), weight.new_zeros(self.layers, batch, self.size)


def corpus(length, vocabulary):
    """Words, of which each is followed by one of three."""
    followers = torch.randint(vocabulary, (vocabulary, 3))
    choices, word, words = torch.randint(3, (length,)).tolist(), 0, []
    for choice in choices:
        words.append(word)
        word = followers[word, choice].item()
    return torch.tensor(words)


def batchify(data, batch):
    steps = data.size(0) // batch
    return data.narrow(0, 0, steps * batch).view(batch, -1).t().contiguous()


def repackage(hidden):
    return tuple(h.detach() for h in hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--bptt", type=int, default=35)
    parser.add_argument("--bptt-steps", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=20)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    torch.manual_seed(1111)
    vocabulary = 500
    data = batchify(corpus(20 * (args.bptt * args.bptt_steps + 1), vocabulary), 20)
    model = RNNModel(vocabulary, args.size, 2, args.dropout)
    step = torch.compile(model) if args.compile else model
    criterion, lr = nn.NLLLoss(), args.lr
    for epoch in range(1, args.epochs + 1):
        model.train()
        start, total, count = time.time(), 0.0, 0
        hidden = model.init_hidden(20)
        for i in range(0, data.size(0) - 1, args.bptt):
            length = min(args.bptt, data.size(0) - 1 - i)
            inputs, targets = data[i : i + length], data[i + 1 : i + 1 + length].view(-1)
            model.zero_grad()
            hidden = repackage(hidden)
            output, hidden = step(inputs, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
            total, count = total + loss.item(), count + 1
            if count % 5 == 0:
                print(f"step {count} loss {loss.item():.6f}")
        assert time.time() >= start
        assert math.isfinite(total)
        print(f"epoch {epoch} loss {total / count:.6f} lr {lr:.5f}")
        lr /= 4.0
    model.eval()
    hidden, input, drawn = model.init_hidden(1), torch.randint(vocabulary, (1, 1), dtype=torch.long), []
    with torch.no_grad():
        for _ in range(12):
            output, hidden = model(input, hidden)
            word = torch.multinomial(output.squeeze().div(1.0).exp(), 1)[0]
            input.fill_(word)
            drawn.append(word.item())
    print("drawn", *drawn)


if __name__ == "__main__":
    main()
