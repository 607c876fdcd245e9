"""A small GPT: pre-norm blocks with causal attention and a squared-ReLU MLP."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class ModelConfig:
    vocabulary: int
    layers: int = 4
    width: int = 160
    heads: int = 4
    context: int = 64


class Attention(nn.Module):
    """Causal self-attention with one fused projection: rows [queries; keys; values]."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        weights = (scores + self.mask[:length, :length]).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.relu(self.up(self.mlp_norm(x))).square())


class GPT(nn.Module):
    """Maps characters [batch, length] to logits [batch, length, vocabulary]."""

    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self._initialise(config)

    def _initialise(self, config):
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("attention.out.weight", "down.weight"))
                depth = (2 * config.layers) ** -0.5 if residual else 1.0
                nn.init.normal_(parameter, std=0.05 * depth)

    def forward(self, characters):
        places = torch.arange(characters.shape[1])
        x = self.tokens(characters) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, batch):
    """Mean cross entropy in nats per character; batch holds (inputs, targets), int64 [B, T]."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def is_hidden_matrix(name, parameter):
    """Whether Muon updates it: matrices inside the blocks; the rest is AdamW's."""
    return parameter.dim() == 2 and name.startswith("blocks.")


def parameter_count(model):
    return sum(parameter.numel() for parameter in model.parameters())
