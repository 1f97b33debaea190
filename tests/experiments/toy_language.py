"""A toy language, word by word: enough to train a translator on in a second."""

import random
from pathlib import Path

WORDS = {
    "a": "ein",
    "dog": "Hund",
    "man": "Mann",
    "child": "Kind",
    "house": "Haus",
    "runs": "läuft",
    "sleeps": "schläft",
    "sees": "sieht",
    "near": "neben",
    "red": "rot",
    "small": "klein",
    "and": "und",
}


def write_pair(folder: Path, count: int, *, seed: int = 0) -> tuple[Path, Path]:
    """Sentences of three to nine words, and their translations."""
    dice = random.Random(seed)
    lines = [dice.choices(list(WORDS), k=dice.randint(3, 9)) for _ in range(count)]
    source, target = folder / f"toy{seed}.en", folder / f"toy{seed}.de"
    source.write_text("".join(" ".join(line).capitalize() + " .\n" for line in lines))
    target.write_text("".join(" ".join(WORDS[word] for word in line) + " .\n" for line in lines))
    return source, target
