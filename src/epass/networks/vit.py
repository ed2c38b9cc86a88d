"""Vision transformers (Dosovitskiy et al., ICLR 2021): pre-norm blocks, the class token as the image's features.

Layers have the names of timm and MAE, so that their weights fit as they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..parts.draws import uniform


class ViT(nn.Module):
    """Images (N, in_channels, H, W) in, features (N, width) out.

    Learned positions belong to the patches of an image of `image_size` pixels. Other sizes, any multiples of the patch,
    work too: the positions are then interpolated. In training every branch of a block is left out at random for whole
    images (stochastic depth), more often in later blocks, up to `drop_path` in the last.

    Args:
        image_size: Side of the square images, in pixels.
        patch_size: Side of the patches that become tokens.
        width: Of the tokens and of the features.
        depth: Number of blocks.
        num_heads: Of the attention.
        in_channels: Of the images.
        drop_path: How often the last block leaves a branch out.
        decay_tokens: Apply weight decay to the class token and the positions too, as published code does by accident.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        width: int,
        depth: int,
        num_heads: int,
        *,
        in_channels: int = 3,
        drop_path: float = 0.0,
        decay_tokens: bool = False,
    ) -> None:
        super().__init__()
        if image_size % patch_size or width % num_heads:
            raise InputError(
                f"A ViT divides its image into whole patches and its width into heads: {image_size} pixels by "
                f"{patch_size} and {width} by {num_heads} must leave no rest."
            )
        if not 0 <= drop_path < 1:
            raise InputError(f"net.drop_path lies in [0, 1), not at {drop_path}.")
        self.image_size, self.patch_size, self.num_features = image_size, patch_size, width
        self.undecayed = () if decay_tokens else ("cls_token", "pos_embed")  # read by the optimizer
        self.num_layers = depth + 1  # the last one is what stands behind this network: heads and projectors
        self.patch_embed = _Patches(in_channels, width, patch_size)
        side = image_size // patch_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + side * side, width))
        self.blocks = nn.ModuleList(_Block(width, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.drop_path = drop_path
        rates = [drop_path * block / max(1, depth - 1) for block in range(depth)]
        self.register_buffer("drop_rates", torch.tensor(rates)[:, None], persistent=False)
        self.drop_rates: Tensor  # (depth, 1)
        # Which branches are left out is a function of this number, which counts on: as part of the state it makes
        # resumed and captured runs leave out the same ones. It starts at random for seeds to differ.
        self.register_buffer("drop_seed", torch.randint(1 << 62, ()))
        self.drop_seed: Tensor

    def forward(self, images: Tensor) -> Tensor:
        self.check_images(*images.shape[2:])
        patches: Tensor = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches.flatten(2).mT], 1)
        tokens = tokens + resize_positions(self.pos_embed, patches.shape[2], patches.shape[3])
        for block, scale in zip(self.blocks, self.branch_scales(tokens), strict=True):
            tokens = block(tokens, scale)
        features: Tensor = self.norm(tokens[:, 0])
        return features

    def branch_scales(self, tokens: Tensor) -> list[Tensor | None]:
        """For every block (N, 2): 0 for a branch that is left out, else what keeps its expectation."""
        if not self.training or self.drop_path == 0:
            return [None] * len(self.blocks)
        kept = uniform(self.drop_seed, len(tokens), len(self.blocks), 2, salt=0) >= self.drop_rates
        self.drop_seed.add_(1)
        return list((kept / (1 - self.drop_rates)).unbind(1))

    def check_images(self, height: int, width: int) -> None:
        """Refuse images that do not consist of whole patches."""
        if height % self.patch_size or width % self.patch_size or not height or not width:
            near = max(1, round(min(height, width) / self.patch_size)) * self.patch_size
            raise InputError(
                f"This ViT cuts images into patches of {self.patch_size} pixels, which do not fill {height} x {width}: "
                f"set data.image_size to {near}, or to {self.image_size}, which it was made for."
            )

    def layer_of(self, name: str) -> int:
        """The layer that a parameter belongs to, for layer-wise learning rates: 0 is next to the image."""
        part, _, rest = name.partition(".")
        if part == "blocks":
            return int(rest.partition(".")[0]) + 1
        return self.num_layers - 1 if part == "norm" else 0


class _Patches(nn.Module):
    """Every patch becomes a token."""

    def __init__(self, in_channels: int, width: int, patch_size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, width, patch_size, patch_size)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)
        return patches


class _Block(nn.Module):
    """Attention, then an MLP on every token; each is a branch that is added to its input."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = _Attention(width, num_heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = _MLP(width)

    def forward(self, tokens: Tensor, scale: Tensor | None) -> Tensor:
        tokens = _add(tokens, self.attn(self.norm1(tokens)), scale, 0)
        return _add(tokens, self.mlp(self.norm2(tokens)), scale, 1)


def _add(tokens: Tensor, branch: Tensor, scale: Tensor | None, position: int) -> Tensor:
    return tokens + (branch if scale is None else branch * scale[:, position, None, None])


class _Attention(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        heads = self.qkv(tokens).unflatten(2, (3, self.num_heads, -1))  # (N, L, 3, heads, width / heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(seen.transpose(1, 2).flatten(2))
        return out


class _MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return out


def resize_positions(positions: Tensor, height: int, width: int) -> Tensor:
    """(1, 1 + side * side, D) -> (1, 1 + height * width, D): the class token's is kept, the grid is interpolated."""
    side = round((positions.shape[1] - 1) ** 0.5)
    if (height, width) == (side, side):
        return positions
    grid = positions[:, 1:].mT.reshape(1, -1, side, side)
    grid = F.interpolate(grid, size=(height, width), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], grid.flatten(2).mT], 1)
