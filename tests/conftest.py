"""Networks in tests are small, and test processes run side by side: more threads would only wait for each other."""

import torch

torch.set_num_threads(1)
