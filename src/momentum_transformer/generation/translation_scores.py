"""How good translations are: BLEU and chrF by sacrebleu, with the signatures that make the numbers comparable."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import UserError
from ..install import install_hint


class ScoreError(UserError):
    """Scores that cannot be computed on this machine; the message is for the user."""


@dataclass(frozen=True)
class TranslationScores:
    bleu: float  # of detokenised text
    chrf: float
    tokenized_bleu: float | None  # of Moses tokens, as in the paper; None where no tokens were given
    bleu_signature: str
    chrf_signature: str


def require_sacrebleu() -> None:
    if find_spec("sacrebleu") is None:
        raise ScoreError(f"scores need sacrebleu: {install_hint('translation')}")


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenized: tuple[Sequence[str], Sequence[str]] | None = None,
) -> TranslationScores:
    """Corpus scores of detokenised text, one reference a sentence; `tokenized`: the same two as tokens and spaces."""
    _check(hypotheses, references)
    if tokenized is not None:
        _check(*tokenized)
    require_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(), CHRF()
    tokenized_bleu = None
    if tokenized is not None:  # force: text with spaces before its full stops is what sacrebleu would warn of
        tokenized_bleu = BLEU(tokenize="none", force=True).corpus_score(tokenized[0], [tokenized[1]]).score
    return TranslationScores(
        bleu=bleu.corpus_score(hypotheses, [references]).score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        tokenized_bleu=tokenized_bleu,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses and references are lists of sentences, not one string")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(references):,} references need as many hypotheses, not {len(hypotheses):,}")
    if not references:
        raise ValueError("there is nothing to score: no hypotheses, no references")
