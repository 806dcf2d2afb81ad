"""A small GPT: characters in, the next character out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Causal self-attention, then a two-layer network, each added to its input.

    Attention is written out: the fused kernels sum in an order that may differ from run to run on a GPU, and this
    example promises that a resumed run prints the same losses.
    """

    def __init__(self, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.before_network = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("future", torch.ones(context, context, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(self.before_attention(x)))
        return x + self.dropout(self.network(self.before_network(x)))

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.future[:length, :length], float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ value
        return self.attended(mixed.transpose(1, 2).reshape(batch, length, width))


class GPT(nn.Module):
    """Embeddings, blocks, and scores for every character of the alphabet."""

    def __init__(
        self, alphabet: int, context: int, width: int = 64, heads: int = 4, layers: int = 2, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.characters = nn.Embedding(alphabet, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, context, dropout) for _ in range(layers)))
        self.last = nn.LayerNorm(width)
        self.scores = nn.Linear(width, alphabet)

    def forward(self, characters: Tensor) -> Tensor:
        places = torch.arange(characters.shape[1], device=characters.device)
        return self.scores(self.last(self.blocks(self.characters(characters) + self.places(places))))
