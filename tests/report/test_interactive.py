"""What points of a figure say: the names of rows and ticks, the whole of a bar, and of a rule its value alone."""

import io
import re
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from momentum_transformer.report.gap_figures import Panel, share_figure
from momentum_transformer.report.interactive import interactive


@pytest.fixture
def axis() -> Iterator[Axes]:
    _, axis = plt.subplots()
    yield axis
    plt.close("all")


def said(figure: Figure) -> list[str]:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return re.findall(r'data-says="([^"]*)"', interactive(figure, drawn.getvalue()))


def said_by(axis: Axes) -> list[str]:
    figure = axis.figure
    assert isinstance(figure, Figure)
    return said(figure)


def test_a_lying_bar_says_its_row_and_its_whole_length(axis: Axes) -> None:
    axis.barh([1, 0], [4.0, 250.0])
    axis.set_xscale("log")
    axis.set_yticks([1, 0], ["softmax,\nrecomputed", "linear"])
    axis.set_xlabel("images/s")
    assert said_by(axis) == ["softmax, recomputed: images/s 4", "linear: images/s 250"]


def test_ticks_with_words_are_said_as_they_are_written(axis: Axes) -> None:
    axis.plot([0, 1], [0.5, 0.25], marker="o", label="mean")
    axis.set_xticks([0, 1], ["0.3", "0.99"])
    axis.set(xlabel="β", ylabel="loss")
    assert said_by(axis) == ["mean: β 0.3, loss 0.5", "mean: β 0.99, loss 0.25"]


def test_a_rule_says_its_value_and_one_without_a_name_nothing(axis: Axes) -> None:
    axis.axhline(0.5, label="chance")
    axis.axvline(0.25)
    axis.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    assert set(said_by(axis)) == {"chance: accuracy 0.5"}


def test_shares_beyond_the_axis_say_what_they_are_and_the_others_their_model() -> None:
    values = {"softmax": np.array([1.0]), "linear": np.array([-9.0]), "delta": np.array([2.345678])}
    figure = share_figure([Panel("recall", values, frozenset())])
    beyond = {"linear: -9, beyond the axis at: -0.3", "delta: 2.346, beyond the axis at: 1.5"}
    assert set(said(figure)) == {"softmax: 1", *beyond}
    plt.close(figure)
