import torch

from prood.attacks import draws

PLACES = torch.arange(4096)
KEYS = draws.keys(draws.stream("test"), torch.arange(64))
IMAGES = torch.empty(4000, 2, 7, 5)
IMAGE_KEYS = draws.keys(draws.stream("images"), torch.arange(len(IMAGES)))


def test_uniform_numbers_have_the_moments_of_a_uniform_distribution():
    numbers = draws.uniform(KEYS[:, None], PLACES).double()  # 2¹⁸ of them: the mean is known to 6·10⁻⁴
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert abs(numbers.mean() - 1 / 2) < 4e-3
    assert abs(numbers.var() - 1 / 12) < 1e-3
    counts = torch.histc(numbers, 32, 0, 1)
    expected = numbers.numel() / 32
    assert ((counts - expected) ** 2 / expected).sum() < 80  # χ² with 31 degrees of freedom


def test_neighbouring_keys_and_places_are_independent():
    numbers = draws.uniform(KEYS[:, None], PLACES).double()
    for other in (numbers.roll(1, 0), numbers.roll(1, 1), numbers.roll((1, -1), (0, 1))):
        both = torch.stack([numbers.flatten(), other.flatten()])
        assert abs(torch.corrcoef(both)[0, 1]) < 0.012
    assert torch.corrcoef(numbers).fill_diagonal_(0).abs().max() < 0.09  # 4096 numbers each: σ is 0.016


def test_every_bit_is_as_often_one_as_zero():
    bits = (draws.uniform(KEYS[:, None], PLACES).double() * 2**24).long()[..., None] >> torch.arange(24) & 1
    assert (bits.double().mean((0, 1)) - 0.5).abs().max() < 5e-3


def test_streams_do_not_collide():
    bases = [draws.stream(*name) for name in ((0, "pgd"), (1, "pgd"), (0, "apgd"), (0,), ("0", "pgd"), (0, "p", "gd"))]
    assert len(set(bases)) == len(bases)
    images = torch.stack([draws.keys(base, torch.arange(200)) for base in bases])
    steps = draws.keys(images[:, :, None], torch.arange(-2, 200))
    assert torch.cat([images.flatten(), steps.flatten()]).unique().numel() == images.numel() + steps.numel()


def test_a_number_does_not_depend_on_the_others_that_are_drawn():
    alone = torch.cat([draws.uniform_like(IMAGE_KEYS[k : k + 1], IMAGES[:1]) for k in (3, 0, 8)])
    assert torch.equal(draws.uniform_like(IMAGE_KEYS, IMAGES)[[3, 0, 8]], alone)
    assert torch.equal(draws.blocks_like(IMAGE_KEYS, IMAGES)[[5]], draws.blocks_like(IMAGE_KEYS[[5]], IMAGES[:1]))


def test_stream_keys_are_the_same_on_every_machine():
    assert draws.stream(0, "pgd") == -1256847542983354802


def test_splitmix_is_the_published_one():
    # The first outputs of the reference implementation for the seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    got = draws.keys(torch.tensor(1234567), torch.arange(3))
    assert [value % 2**64 for value in got.tolist()] == expected


def test_gaussian_numbers_have_the_moments_of_a_normal_distribution():
    numbers = draws.gaussian_like(IMAGE_KEYS, IMAGES).double()
    assert numbers.isfinite().all()
    assert abs(numbers.mean()) < 0.012
    assert abs(numbers.var() - 1) < 0.02
    assert abs((numbers**3).mean()) < 0.04
    assert abs((numbers**4).mean() - 3) < 0.1
    assert abs(torch.corrcoef(numbers.flatten(1)[:, :2].T)[0, 1]) < 0.06


def test_the_smallest_and_the_largest_uniform_number_are_finite_gaussian_ones(monkeypatch):
    """One in 2²⁴ pixels gets them, which is often."""
    ends = torch.tensor([0.0, 1 - 2.0**-24])
    monkeypatch.setattr(draws, "uniform", lambda key, place: ends)
    smallest, largest = draws.gaussian_like(IMAGE_KEYS[:1], torch.empty(1, 1, 1, 2)).flatten().tolist()
    assert -6 < smallest < -5
    assert abs(largest + smallest) < 1e-6


def test_blocks_are_constant_on_squares_of_every_size():
    blocks = draws.blocks_like(IMAGE_KEYS, IMAGES)
    assert (blocks >= 0).all()
    assert (blocks < 1).all()
    seen = dict.fromkeys((1, 2, 4, 8), 0)
    for side in seen:  # constant on squares of this side, and not on those of twice the side
        rows, columns = torch.arange(7) // side * side, torch.arange(5) // side * side
        seen[side] = int((blocks == blocks[:, :, rows][..., columns]).flatten(1).all(1).sum())
    assert seen[1] == len(blocks)  # every pixel is a square of side 1
    for smaller, larger in ((1, 2), (2, 4), (4, 8)):
        assert seen[smaller] - seen[larger] > 0.2 * len(blocks)
    assert seen[8] > 0.2 * len(blocks)  # the whole image
    assert abs((blocks < 0.5).double().mean() - 0.5) < 0.03


def test_channels_and_squares_are_drawn_apart():
    blocks = draws.blocks_like(IMAGE_KEYS, IMAGES).double()
    corners = torch.stack([blocks[:, 0, 0, 0], blocks[:, 1, 0, 0]])
    assert abs(torch.corrcoef(corners)[0, 1]) < 0.06
    fine = blocks[(blocks[:, 0, 0, 0] != blocks[:, 0, 0, 1])]
    assert abs(torch.corrcoef(torch.stack([fine[:, 0, 0, 0], fine[:, 0, 0, 1]]))[0, 1]) < 0.1
