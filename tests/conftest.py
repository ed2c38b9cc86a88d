"""Settings for every test."""

from __future__ import annotations

import torch

# The tensors of the tests are tiny: a second thread costs more than it saves, and one gives the same sums everywhere.
torch.set_num_threads(1)
