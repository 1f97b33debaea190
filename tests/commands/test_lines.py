"""Where answers go."""

from pathlib import Path

import pytest

from momentum_transformer.commands.lines import open_output
from momentum_transformer.errors import UserError
from momentum_transformer.experiments.configuration import ConfigurationError


def write(out: Path, text: str, failure: BaseException) -> None:
    with open_output(out) as place:
        place.write(text)
        raise failure


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_answers_that_are_not_whole_leave_the_old_file(failure: BaseException, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("old")
    told = ConfigurationError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(told):
        write(out, "half", failure)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_answers_before_a_line_that_has_none_are_kept(tmp_path: Path) -> None:
    out, link = tmp_path / "out.txt", tmp_path / "link"
    link.symlink_to(out)
    with pytest.raises(UserError, match="line 2"):
        write(link, "one\n", UserError("line 2"))
    assert out.read_text() == "one\n"
    assert link.is_symlink()
