"""What a terminal shows while a model is trained."""

import io

import pytest
from rich.console import Console

from momentum_transformer.training.progress import progress_bar


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


def test_a_wide_terminal_shows_more() -> None:
    assert "1,234 tokens/s" in shown(160, "copy linear")
