"""Drawing pictures byte by byte with the recurrent form: constant time and memory a byte (softmax keeps a cache)."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..decoding.decoder import Decoder, can_decode
from ..models.logistic_mixture import sample_mixture
from ..models.pixel_model import PixelModel, PixelModelState
from ..ops.checks import TEMPERATURE, check_number, check_whole


class Drawn(NamedTuple):
    """The next byte of each picture, and how it came about."""

    pixel: Tensor  # (count,)  uint8
    parameters: Tensor  # (count, 3 · mixtures)  of the distribution it was drawn from
    state: PixelModelState  # what the model remembers of the bytes before it; drawing on may change it in place


def draw(
    model: PixelModel,
    *,
    count: int,
    given: Tensor | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    first: int = 0,
) -> Iterator[Tensor]:
    """Draw `count` pictures side by side: yields the next byte of each, uint8 (count,), until the pictures are whole.

    Args:
        given: the first m bytes of each picture, uint8 (count, m); drawing goes on from there.
        first: the number of the first picture. Picture i has random numbers of its own, from (seed, i) and the place
            of the byte, so a picture is the same however many are drawn beside it, but for rounding.
    """
    drawing = _start(model, count, given, temperature, seed, first)
    return (pixel for pixel, _, _ in drawing)


def trace(
    model: PixelModel,
    *,
    count: int,
    given: Tensor | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    first: int = 0,
) -> Iterator[Drawn]:
    """The same as `draw`, for those who want to watch: with distributions and states."""
    drawing = _start(model, count, given, temperature, seed, first)
    return (Drawn(pixel, parameters, stepper.state) for pixel, parameters, stepper in drawing)


def draw_images(
    model: PixelModel,
    *,
    count: int,
    given: Tensor | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 256,
    drawn: Callable[[int], None] | None = None,
) -> Tensor:
    """`count` whole pictures, uint8 (count, n), at most `batch_size` at a time; `drawn` hears of each step's bytes."""
    check_whole("batch_size", batch_size, 1)
    given = _checked(model, count, given, temperature, seed)
    pictures = torch.empty(count, model.length, dtype=torch.uint8)
    pictures[:, : given.shape[1]] = given
    for start in range(0, count, batch_size):
        rows = slice(start, min(start + batch_size, count))
        size = rows.stop - rows.start
        bytes_ = draw(model, count=size, given=given[rows], temperature=temperature, seed=seed, first=start)
        for position, pixel in enumerate(bytes_, start=given.shape[1]):
            pictures[rows, position] = pixel.cpu()
            if drawn is not None:
                drawn(size)
    return pictures


class Stepper:
    """What takes a byte and gives the distribution of the next one: the decoder where it serves this model, the
    model's own step elsewhere."""

    def __init__(self, model: PixelModel, state: PixelModelState) -> None:
        self._model, self._state = model, state
        self._decoder: Decoder | None = None
        if can_decode(model.encoder):
            left = model.length - int(state.position.max())
            self._decoder = Decoder(model.encoder, state.encoder, max_new_tokens=left, head=model.mixture)
            self._state = state._replace(encoder=self._decoder.state)  # the given one may go

    def step(self, pixel: Tensor) -> Tensor:
        """pixel (count,) → parameters (count, 3 · mixtures)"""
        if self._decoder is None:
            parameters, self._state = self._model.step(pixel, self._state)
            return parameters
        position = self._state.position
        self._state = self._state._replace(position=position + 1)
        return self._decoder.step(self._model.embed(pixel.long(), position))

    @property
    def state(self) -> PixelModelState:
        return self._state if self._decoder is None else self._state._replace(encoder=self._decoder.state)


Step = tuple[Tensor, Tensor, Stepper]  # pixel, parameters, and what goes on from there


def _start(
    model: PixelModel, count: int, given: Tensor | None, temperature: float, seed: int, first: int
) -> Iterator[Step]:
    given = _checked(model, count, given, temperature, seed)
    check_whole("first", first, 0)
    return _draw(model, given, temperature, _uniforms(model.length, count, seed, first))


def _draw(model: PixelModel, given: Tensor, temperature: float, uniforms: Tensor) -> Iterator[Step]:
    device = model.places.device
    uniforms = uniforms.to(device)
    stepper: Stepper | None = None
    pixel = given[:, -1:]
    for position in range(given.shape[1], model.length):
        # inference mode must not be on while the caller has its turn
        with torch.inference_mode():
            if stepper is None:
                parameters, state = _begin(model, given.to(device))
                stepper = Stepper(model, state)
            else:
                parameters = stepper.step(pixel)
            pixel = sample_mixture(parameters, uniforms[:, position], temperature=temperature)
        yield pixel.clone(), parameters, stepper


def _begin(model: PixelModel, given: Tensor) -> tuple[Tensor, PixelModelState]:
    if given.shape[1] == 0:
        return model.step(None, model.initial_state(given.shape[0]))
    parameters, state = model.prefill(given)
    return parameters[:, -1], state


def _uniforms(length: int, count: int, seed: int, first: int) -> Tensor:
    """Two numbers a byte and picture, (count, length, 2)."""
    made = torch.empty(count, length, 2)
    for i in range(count):
        generator = torch.Generator().manual_seed((seed * 1_000_003 + first + i) % 2**63)
        torch.rand(length, 2, generator=generator, out=made[i])
    return made


def _checked(model: PixelModel, count: int, given: Tensor | None, temperature: float, seed: int) -> Tensor:
    """The bytes that are given, where all of these can be drawn with."""
    if model.training:
        raise ValueError("the model must be in evaluation mode, without dropout: call model.eval()")
    check_whole("count", count, 1)
    check_number("temperature", temperature, TEMPERATURE)
    check_whole("seed", seed)
    if given is None:
        return torch.zeros(count, 0, dtype=torch.uint8)
    if not isinstance(given, Tensor):
        raise ValueError(f"given must be a tensor, not {type(given).__name__}")
    if given.ndim != 2 or given.shape[0] != count or given.dtype != torch.uint8:
        raise ValueError(f"given must be uint8 ({count}, m), not {tuple(given.shape)} of {given.dtype}")
    if given.shape[1] > model.length:
        raise ValueError(f"given must be at most the {model.length} bytes of a picture, not {given.shape[1]}")
    return given
