"""A script as people publish them: a recurrent network that tells from its letters which language a name is of.

    published_names.py [--iterations N] [--double]

The names are made of syllables, some for each language. Out: a line `loss L` every few names, and a table of guesses.
"""

import argparse
import random
import string

import torch
from torch import nn

LETTERS = string.ascii_letters + " .,;'"
CATEGORIES = ["Czech", "Greek", "Irish", "Italian", "Japanese", "Polish", "Russian", "Spanish"]


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = torch.tanh(self.i2h(input) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden)), hidden

    def init_hidden(self):
        return torch.zeros(1, self.hidden_size)


def made_up(category):
    source = random.Random(category)
    syllables = ["".join(source.choice(LETTERS[:26]) for _ in range(source.randint(2, 3))) for _ in range(12)]
    return ["".join(random.choice(syllables) for _ in range(random.randint(2, 3))).capitalize() for _ in range(60)]


def line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, len(LETTERS))
    for place, letter in enumerate(line):
        tensor[place][0][LETTERS.find(letter)] = 1
    return tensor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=0.005)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()
    if args.double:
        torch.set_default_dtype(torch.float64)
    random.seed(3)
    torch.manual_seed(3)
    lines = {category: made_up(category) for category in CATEGORIES}
    rnn = RNN(len(LETTERS), 128, len(CATEGORIES))
    criterion = nn.NLLLoss()
    total, right = 0.0, 0
    for number in range(1, args.iterations + 1):
        category = random.choice(CATEGORIES)
        line = line_to_tensor(random.choice(lines[category]))
        target = torch.tensor([CATEGORIES.index(category)], dtype=torch.long)
        hidden = rnn.init_hidden()
        rnn.zero_grad()
        for letter in line:
            output, hidden = rnn(letter, hidden)
        loss = criterion(output, target)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-args.rate)
        total += loss.item()
        guess = output.topk(1)[1][0].item()
        right += guess == target.item()
        if number % 50 == 0:
            print(f"name {number} loss {total / 50:.6f} right {right} last {CATEGORIES[guess]}")
            total, right = 0.0, 0


if __name__ == "__main__":
    main()
