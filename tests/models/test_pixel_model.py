"""The pixel model draws as it was trained, for every model of the paper."""

import pytest
import torch

from momentum_transformer import Encoder
from momentum_transformer.experiments.model_config import named
from momentum_transformer.models.logistic_mixture import mixture_log_likelihood
from momentum_transformer.models.pixel_model import PixelModel

MODELS = ("softmax", "linear", "momentum", "momentum-connection", "adaptive-momentum")
LENGTH = 25


def make(name: str, dtype: torch.dtype = torch.float64) -> PixelModel:
    torch.manual_seed(0)
    sizes = {"beta": 0.6, "gamma": 0.9, "connection_beta": 0.1, "depth": 2, "width": 32, "heads": 4, "feedforward": 64}
    return PixelModel(named(name, sizes).encoder(causal=True), length=LENGTH, mixtures=3).to(dtype).eval()


def pictures(count: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (count, LENGTH), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("name", MODELS)
def test_parallel_and_recurrent_likelihoods_of_a_picture_agree(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    model, images = make(name, dtype), pictures()
    parallel = mixture_log_likelihood(model(images), images)
    state = model.initial_state(len(images))
    steps = []
    for i in range(LENGTH):
        parameters, state = model.step(None if i == 0 else images[:, i - 1], state)
        steps.append(mixture_log_likelihood(parameters, images[:, i]))
    assert torch.allclose(torch.stack(steps, 1), parallel, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("given", [0, 1, 13, LENGTH - 1])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_leaves_the_state_that_steps_leave(name: str, given: int) -> None:
    model, images = make(name), pictures()
    whole = model(images)
    parameters, state = model.prefill(images[:, :given])
    assert torch.allclose(parameters, whole[:, : given + 1], atol=1e-12)
    for i in range(given + 1, LENGTH):
        step, state = model.step(images[:, i - 1], state)
        assert torch.allclose(step, whole[:, i], atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_byte_is_scored_by_those_before_it_only(name: str) -> None:
    model, images = make(name), pictures()
    changed = images.clone()
    changed[:, 20] = 255 - changed[:, 20]
    before, after = model(images), model(changed)
    assert torch.allclose(before[:, :21], after[:, :21], atol=1e-12)
    assert not torch.allclose(before[:, 21], after[:, 21], atol=1e-6)


def test_the_first_byte_is_predicted_from_a_learned_start() -> None:
    model, images = make("momentum"), pictures()
    first = model(images)[:, 0]
    assert torch.allclose(first[0], first[1])
    mixture_log_likelihood(first, images[:, 0]).sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert gradient[256].abs().sum() > 0
    assert gradient[:256].abs().sum() == 0


def test_wrong_pixels_are_refused_in_one_line() -> None:
    model = make("linear")
    for wrong, message in [
        (torch.zeros(2, LENGTH), "whole numbers"),
        (torch.zeros(LENGTH, dtype=torch.long), "whole numbers"),
        (torch.zeros(2, LENGTH + 1, dtype=torch.long), f"at most {LENGTH}"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(wrong)
    with pytest.raises(ValueError, match=f"at most {LENGTH - 1}"):
        model.prefill(torch.zeros(2, LENGTH, dtype=torch.uint8))
    with pytest.raises(ValueError, match="causal=True"):
        PixelModel(Encoder(1, 8, 2, causal=False), length=4)
    with pytest.raises(ValueError, match="length and mixtures must be 1 or more"):
        PixelModel(Encoder(1, 8, 2), length=0)
