"""What holds for all tests."""

import torch
from hypothesis import settings

# Networks in tests are small, and test processes run side by side: more threads would only wait for each other.
torch.set_num_threads(1)

# The same examples in every run, however busy the machine: a change fails by itself, never by chance. To look for new
# examples, run pytest with --hypothesis-profile=explore.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeat")
