"""A script as people publish them: nn.Transformer as a translator, of sentences in two languages that it makes up.

    published_translation.py [--sentences N] [--epochs N] [--double]

The second language says the words of the first in reverse, in words of its own. Out: a line `loss L` a batch, and of
an epoch; a sentence that was translated greedily.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

UNK, PAD, BOS, EOS = range(4)
WORDS = 60


class PositionalEncoding(nn.Module):
    def __init__(self, width, dropout, longest=200):
        super().__init__()
        den = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
        pos = torch.arange(0, longest).reshape(longest, 1)
        table = torch.zeros((longest, width))
        table[:, 0::2] = torch.sin(pos * den)
        table[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", table.unsqueeze(-2))

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(0), :])


class TokenEmbedding(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.width = width

    def forward(self, tokens):
        return self.embedding(tokens.long()) * math.sqrt(self.width)


class Seq2Seq(nn.Module):
    def __init__(self, layers, width, heads, inner, dropout=0.1):
        super().__init__()
        self.transformer = nn.Transformer(width, heads, layers, layers, inner, dropout)
        self.generator = nn.Linear(width, WORDS + 4)
        self.src, self.tgt = TokenEmbedding(WORDS + 4, width), TokenEmbedding(WORDS + 4, width)
        self.positional = PositionalEncoding(width, dropout)

    def forward(self, src, tgt, src_mask, tgt_mask, src_padding, tgt_padding):
        src, tgt = self.positional(self.src(src)), self.positional(self.tgt(tgt))
        out = self.transformer(src, tgt, src_mask, tgt_mask, None, src_padding, tgt_padding, src_padding)
        return self.generator(out)

    def encode(self, src, mask):
        return self.transformer.encoder(self.positional(self.src(src)), mask)

    def decode(self, tgt, memory, mask):
        return self.transformer.decoder(self.positional(self.tgt(tgt)), memory, mask)


def causal(size):
    mask = (torch.triu(torch.ones((size, size))) == 1).transpose(0, 1)
    return mask.to(torch.get_default_dtype()).masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def masks(src, tgt):
    src_mask = torch.zeros((src.shape[0], src.shape[0])).type(torch.bool)
    return src_mask, causal(tgt.shape[0]) == float("-inf"), (src == PAD).transpose(0, 1), (tgt == PAD).transpose(0, 1)


def collate(pairs):
    def padded(sentences):
        edges = torch.tensor([BOS]), torch.tensor([EOS])
        return pad_sequence([torch.cat((edges[0], s, edges[1])) for s in sentences], padding_value=PAD)

    return padded([a for a, _ in pairs]), padded([b for _, b in pairs])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    own = torch.randperm(WORDS) + 4
    said = [torch.randint(4, WORDS + 4, (int(n),)) for n in torch.randint(4, 12, (args.sentences,))]
    pairs = [(words, own[words.flip(0) - 4]) for words in said]
    loader = DataLoader(pairs, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    model = Seq2Seq(3, args.width, 8, args.width)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001, betas=(0.9, 0.98), eps=1e-9)
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for src, tgt in loader:
            given = tgt[:-1, :]
            src_mask, tgt_mask, src_padding, tgt_padding = masks(src, given)
            logits = model(src, given, src_mask, tgt_mask, src_padding, tgt_padding)
            optimizer.zero_grad()
            loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt[1:, :].reshape(-1))
            loss.backward()
            optimizer.step()
            total += loss.item()
            print(f"epoch {epoch} batch loss {loss.item():.6f}")
        print(f"epoch {epoch} loss {total / len(loader):.6f}")
    model.eval()
    src = collate([pairs[0]])[0]
    with torch.no_grad():
        memory = model.encode(src, torch.zeros(src.shape[0], src.shape[0]).type(torch.bool))
        told = torch.full((1, 1), BOS)
        while told[-1].item() != EOS and len(told) < len(src) + 3:
            out = model.decode(told, memory, causal(told.size(0)) == float("-inf"))
            told = torch.cat((told, model.generator(out[-1]).argmax(1, keepdim=True)))
    print("translated", *told.flatten().tolist())


if __name__ == "__main__":
    main()
