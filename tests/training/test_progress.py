"""What a terminal shows while a model is trained."""

import io

import pytest
from rich.console import Console

from momentum_transformer.training.progress import Progress, in_words, progress_bar, shortened


def shown(width: int, title: str) -> str:
    console = Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)
    bar = progress_bar(console)
    bar.add_task(title, total=123_456, completed=65_432, status="loss 12.3456", more="1,234 tokens/s")
    with console.capture() as capture:
        console.print(bar.get_renderable())
    return capture.get().rstrip("\n")


@pytest.mark.parametrize("title", ["copy linear", "lra-pathfinder momentum-connection seed 10 beta=0.6"])
def test_eighty_columns_keep_bar_step_loss_and_time_left(title: str) -> None:
    line = shown(80, title)
    assert "\n" not in line
    assert len(line.rstrip()) <= 80
    for part in ("━━━", "65432/123456", "loss 12.3456", ":", "left", title[:20]):
        assert part in line, part
    assert "tokens/s" not in line


def test_names_of_runs_that_differ_in_seed_model_or_rate_differ_in_thirty_columns() -> None:
    models = "copy momentum-connection", "lra-pathfinder momentum", "lra-pathfinder momentum-connection"
    names = [f"seed {seed} {model}" for seed in (1, 12) for model in models]
    names += [f"seed 0 text softmax budget=softmax learning_rate={rate}" for rate in (0.001, 0.003)]
    cut = [shortened(name, 30) for name in names]
    assert len(set(cut)) == len(names)
    assert all(len(name) <= 30 for name in cut)


def test_a_wide_terminal_shows_more() -> None:
    assert "1,234 tokens/s" in shown(160, "copy linear")


def test_each_evaluation_shows_its_scores_and_what_the_model_writes_in_eighty_columns() -> None:
    said = io.StringIO()
    progress = Progress("text gated-delta", 2000, 0, leads=True)
    progress.console = Console(width=80, force_terminal=True, file=said, color_system=None)
    scores = {"loss": 2.0123, "bits_per_byte": 2.9034, "nats_per_character": 2.0123, "perplexity": 7.4823}
    with progress:
        progress.validated(200, scores)
        progress.sampled("ROMEO:\nIt is the east\x1b[2J, " + "and so on, " * 50)
    lines = [line.split("\r")[-1] for line in said.getvalue().splitlines()]
    shown = "\n".join(lines)
    assert "step 200: loss 2.0123  bits per byte 2.9034  perplexity 7.4823" in shown  # one line; nats once
    assert "  ROMEO:\n  It is the east\ufffd[2J, and so on" in shown
    assert sum("and so on" in line for line in lines) <= 4


def test_scores_that_need_two_lines_are_parted_between_them() -> None:
    scores = {"loss": 5.7129, "bits_per_byte": 5.3174, "nats_per_character": 3.6858, "perplexity": 302.7597}
    lines = in_words("step 2000", scores, 80).split("\n")
    assert lines == [
        "step 2000: loss 5.7129  bits per byte 5.3174  nats per character 3.6858",
        "  perplexity 302.7597",
    ]


def test_without_a_terminal_an_evaluation_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("copy linear", 100, 0, leads=True) as progress:
        progress.validated(50, {"loss": 0.5})
        progress.sampled("not shown")
    assert capsys.readouterr().out == "copy linear  step 50/100  validation: loss 0.5000\n"


def test_without_a_terminal_scores_are_in_words_and_lines_have_eighty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scores = {"loss": 2.0123, "bits_per_byte": 2.9034, "nats_per_character": 2.0124, "perplexity": 7.4823}
    with Progress("text momentum-delta", 2000, 0, leads=True) as progress:
        progress.validated(200, scores)
    said = capsys.readouterr().out
    assert "bits per byte 2.9034" in said
    assert "nats per character 2.0124" in said
    assert all(len(line) <= 80 for line in said.splitlines())
