import math

import pytest
import torch


@pytest.fixture
def check_gradient():
    """Compare the gradient of a loss by every weight with differences along a random direction."""

    def check(model, loss, *, step: float = 1e-6, rel_tol: float = 1e-5, abs_tol: float = 1e-8) -> None:
        loss().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            direction = torch.randn_like(parameter)
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter += sign * step * direction
                    ends.append(loss().item())
                    parameter -= sign * step * direction
            slope = (ends[0] - ends[1]) / (2 * step)
            assert math.isclose(slope, (parameter.grad * direction).sum().item(), rel_tol=rel_tol, abs_tol=abs_tol)

    return check
