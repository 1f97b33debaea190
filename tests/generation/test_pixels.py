"""Drawing: seeded picture by picture, with constant memory, and the same as the parallel form would have it."""

import pytest
import torch

from momentum_transformer.generation.pixels import draw, draw_images, trace
from momentum_transformer.models.logistic_mixture import mixture_log_likelihood
from momentum_transformer.models.pixel_model import PixelModel
from momentum_transformer.ops.state import state_tensors
from tests.models.test_pixel_model import LENGTH, MODELS, make, pictures


@pytest.mark.parametrize("name", MODELS)
def test_a_picture_is_the_same_however_many_are_drawn_beside_it(name: str) -> None:
    model = make(name)
    together = draw_images(model, count=3, seed=3)
    assert torch.equal(draw_images(model, count=3, seed=3, batch_size=2), together)
    alone = torch.stack(list(draw(model, count=1, seed=3, first=2)), 1)
    assert torch.equal(alone[0], together[2])
    assert len({tuple(row) for row in together.tolist()}) == 3
    assert not torch.equal(draw_images(model, count=3, seed=4), together)


@pytest.mark.parametrize("name", MODELS)
def test_completion_keeps_what_was_given_and_goes_on_as_if_it_had_drawn_it(name: str) -> None:
    model = make(name)
    whole = draw_images(model, count=3, seed=1)
    for m in (0, 1, 20, LENGTH - 1, LENGTH):
        assert torch.equal(draw_images(model, count=3, seed=1, given=whole[:, :m]), whole)
    upper = pictures()[:, :20]
    completed = draw_images(model, count=3, seed=1, given=upper)
    assert torch.equal(completed[:, :20], upper)
    assert not torch.equal(completed[:, 20:], whole[:, 20:])


def test_bytes_come_one_at_a_time_and_leave_the_callers_mode_alone() -> None:
    model = make("momentum")
    bytes_ = draw(model, count=2, given=pictures(2)[:, :9])
    pixel = next(bytes_)
    assert (pixel.shape, pixel.dtype) == ((2,), torch.uint8)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert not pixel.is_inference()
    assert 1 + len(list(bytes_)) == LENGTH - 9


def test_a_trace_shows_the_distributions_that_the_bytes_were_drawn_from() -> None:
    model = make("momentum")
    traced = list(trace(model, count=2, given=pictures(2)[:, :9], seed=1))
    pixels = torch.stack([drawn.pixel for drawn in traced], 1)
    assert torch.equal(pixels, torch.stack(list(draw(model, count=2, given=pictures(2)[:, :9], seed=1)), 1))
    with torch.no_grad():
        parallel = model(torch.cat([pictures(2)[:, :9], pixels], 1))[:, 9:]
    assert torch.allclose(torch.stack([drawn.parameters for drawn in traced], 1), parallel, atol=1e-4)
    assert [int(drawn.state.position[0]) for drawn in traced] == list(range(10, LENGTH + 1))


def test_drawing_at_temperature_zero_takes_the_mode() -> None:
    model = make("linear")
    assert torch.equal(draw_images(model, count=1, temperature=0, seed=1), draw_images(model, count=1, temperature=0))
    assert len(draw_images(model, count=4, temperature=0).unique(dim=0)) == 1


@pytest.mark.parametrize("name", ["linear", "momentum", "momentum-connection", "adaptive-momentum"])
def test_memory_a_picture_is_constant(name: str) -> None:
    model = make(name)
    sizes = []
    for given in (1, LENGTH - 1):
        _, state = model.prefill(pictures()[:, :given])
        sizes.append(sum(tensor.numel() for tensor in state_tensors(state).values()))
    assert sizes[0] == sizes[1]


def test_drawn_pictures_are_as_likely_as_the_model_says() -> None:
    """Entropy: the mean of -log p over samples of p equals its expectation; a sampler of another p does not."""
    model = make("momentum", torch.float32)
    images = draw_images(model, count=1000, seed=0)
    with torch.no_grad():
        parameters, pixels = model(images)[:, ::7], images[:, ::7]
        every = torch.arange(256).expand(*pixels.shape, 256)
        log_p = mixture_log_likelihood(parameters[:, :, None].expand(-1, -1, 256, -1), every)
        surprise = -mixture_log_likelihood(parameters, pixels) + (log_p.exp() * log_p).sum(-1)
    error = surprise.std() / surprise.numel() ** 0.5
    assert surprise.mean().abs() < 4 * error
    assert error < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be 1 or more, not 0"),
        ({"count": 2, "temperature": -0.5}, "temperature must be 0 or more"),
        ({"count": 2, "temperature": float("nan")}, "temperature must be 0 or more"),
        ({"count": 2, "given": torch.zeros(3, 4, dtype=torch.uint8)}, r"given must be uint8 \(2, m\), not \(3, 4\)"),
        ({"count": 2, "given": torch.zeros(2, 4)}, "of torch.float32"),
        ({"count": 2, "given": torch.zeros(2, LENGTH + 1, dtype=torch.uint8)}, "at most the 25 bytes"),
        ({"count": 2, "batch_size": 0}, "batch_size must be 1 or more"),
        ({"count": 2, "batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"count": -1}, "count must be 1 or more, not -1"),
        ({"count": 2.0}, "count must be a whole number, not 2.0"),
        ({"count": 2, "temperature": "hot"}, "temperature must be a number, not str"),
        ({"count": 2, "seed": 0.5}, "seed must be a whole number, not 0.5"),
        ({"count": 2, "given": [[1], [2]]}, "given must be a tensor, not list"),
    ],
)
def test_wrong_requests_are_refused_at_once(options: dict[str, object], message: str) -> None:
    model = make("linear")
    with pytest.raises(ValueError, match=message):
        draw_images(model, **options)
    if "batch_size" not in options:
        with pytest.raises(ValueError, match=message):
            draw(model, **options)


def test_a_model_with_dropout_on_is_refused() -> None:
    model: PixelModel = make("linear").train()
    with pytest.raises(ValueError, match=r"call model.eval\(\)"):
        draw(model, count=1)
