"""One rank of the step that bench_step times, by torch's own DDP over Gloo.

The model is trainsys' TransformerLM, operation by operation. Says "ready" and
its number of parameters; then answers each line with the begin and the end of
one step, in ns of the machine's clock. Ends with its stdin.
"""
import math
import os
import sys
import time
from datetime import timedelta

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def weight(rows, columns):
    return nn.Parameter(torch.empty(rows, columns).normal_(0, 0.02))


class Positions:
    """The tables of rotary attention; not trained, not broadcast."""

    def __init__(self, context, heads, head_dim):
        pairs = torch.arange(head_dim // 2, dtype=torch.double)
        angles = torch.outer(torch.arange(context, dtype=torch.double),
                             10000 ** (-2 * pairs / head_dim))
        turns = torch.polar(torch.ones_like(angles), angles)
        self.turns = turns.to(torch.complex64).repeat(1, heads)  # [T, D/2]
        self.mask = torch.full((context, context), -math.inf).triu(1)

    def rotate(self, x):  # [B, T, D]
        points = torch.view_as_complex(x.view(*x.shape[:2], -1, 2))
        return torch.view_as_real(points * self.turns).view(x.shape)


class RmsNorm(nn.Module):

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = x.square().mean(-1, keepdim=True).add(1e-5).rsqrt()
        return x * scale * self.weight


class Attention(nn.Module):

    def __init__(self, positions, dim, heads):
        super().__init__()
        self.positions, self.heads = positions, heads
        self.wq, self.wk = weight(dim, dim), weight(dim, dim)
        self.wv, self.wo = weight(dim, dim), weight(dim, dim)

    def split(self, x):  # [B, T, D] -> [B*H, T, K]
        rows, length, dim = x.shape
        heads = x.view(rows, length, self.heads, dim // self.heads)
        return heads.transpose(1, 2).reshape(rows * self.heads, length, -1)

    def mix(self, q, k, v, first, end):
        seen = k[:, :end].transpose(1, 2)
        scores = torch.baddbmm(self.positions.mask[first:end, :end],
                               q[:, first:end], seen,
                               alpha=1 / math.sqrt(q.shape[2]))
        return torch.bmm(torch.softmax(scores, -1), v[:, :end])

    def forward(self, x):
        rows, length, dim = x.shape
        q = self.split(self.positions.rotate(F.linear(x, self.wq)))
        k = self.split(self.positions.rotate(F.linear(x, self.wk)))
        v = self.split(F.linear(x, self.wv))
        half = length // 2
        mixed = torch.cat([self.mix(q, k, v, 0, half),
                           self.mix(q, k, v, half, length)], 1)
        joined = mixed.view(rows, self.heads, length, -1).transpose(1, 2)
        return F.linear(joined.reshape(rows, length, dim), self.wo)


class FeedForward(nn.Module):

    def __init__(self, dim, ffn):
        super().__init__()
        self.w1, self.w3 = weight(ffn, dim), weight(ffn, dim)
        self.w2 = weight(dim, ffn)

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.w1)) * F.linear(x, self.w3),
                        self.w2)


class Block(nn.Module):

    def __init__(self, positions, dim, heads, ffn):
        super().__init__()
        self.attention_norm = RmsNorm(dim)
        self.attention = Attention(positions, dim, heads)
        self.feed_forward_norm = RmsNorm(dim)
        self.feed_forward = FeedForward(dim, ffn)

    def forward(self, x):
        y = x + self.attention(self.attention_norm(x))
        return y + self.feed_forward(self.feed_forward_norm(y))


class TransformerLM(nn.Module):

    def __init__(self, vocab, context, dim, layers, heads, ffn):
        super().__init__()
        positions = Positions(context, heads, dim // heads)
        self.embedding = weight(vocab, dim)
        self.blocks = nn.Sequential(
            *[Block(positions, dim, heads, ffn) for _ in range(layers)])
        self.final_norm = RmsNorm(dim)
        self.output = weight(vocab, dim)

    def forward(self, tokens):
        x = self.blocks(F.embedding(tokens, self.embedding))
        return F.linear(self.final_norm(x), self.output)


def step(model, tokens, targets, vocab):
    dist.barrier()
    begin = time.monotonic_ns()
    model.zero_grad(set_to_none=True)
    logits = model(tokens)
    F.cross_entropy(logits.view(-1, vocab), targets.view(-1)).backward()
    return begin, time.monotonic_ns()


def main():
    store = sys.argv[1]
    (rank, ranks, seconds, bucket_bytes, rows, vocab, context, dim, layers,
     heads, ffn) = map(int, sys.argv[2:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank,
                            world_size=ranks,
                            timeout=timedelta(seconds=seconds))
    torch.manual_seed(rank)
    plain = TransformerLM(vocab, context, dim, layers, heads, ffn)
    model = DistributedDataParallel(plain, gradient_as_bucket_view=True,
                                    bucket_cap_mb=bucket_bytes / 2**20)
    tokens = torch.randint(vocab, (rows, context))
    targets = torch.randint(vocab, (rows, context))
    print("ready", sum(p.numel() for p in plain.parameters()), flush=True)
    for _ in sys.stdin:
        print(*step(model, tokens, targets, vocab), flush=True)


main()
