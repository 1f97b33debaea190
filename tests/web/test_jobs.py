"""What changed from one step to the next."""

import pytest

from momentum_transformer.web.jobs import changed_words


@pytest.mark.parametrize(
    ("before", "words", "changed"),
    [
        ("ein Hund läuft", "ein Hund läuft", ""),
        ("ein Hund läuft", "ein Mann läuft", "Mann"),
        ("ein Hund läuft", "ein großer Hund läuft", "großer"),
        ("ein ein Hund läuft", "ein Hund läuft", ""),
        ("", "ein Hund", "ein Hund"),
        ("ein Hund", "", ""),
        ("a b c", "c b a", "c b"),
    ],
)
def test_changed_words_are_those_that_do_not_carry_on(before: str, words: str, changed: str) -> None:
    after = tuple(words.split())
    assert [after[place] for place in changed_words(tuple(before.split()), after)] == changed.split()


def test_of_the_same_words_those_that_were_added_are_marked() -> None:
    assert changed_words(("der",) * 3, ("der",) * 5) == [3, 4]
