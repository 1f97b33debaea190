"""Which sections the report has: one for each study that has runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..experiments import REPRODUCTIONS
from ..experiments.experiment import Study
from .collect import Run
from .copy_section import beta_section, coefficient_section, connection_section, copy_section, weighting_section
from .entries import keys
from .gap_section import gap_sections
from .groups import Group, groups, scales
from .lra_section import lra_sections
from .picture_section import picture_section
from .section import Section
from .text_section import text_section
from .translation_section import translation_section

Maker = Callable[[list[Group], str, str], Section | None]


def alone(maker: Maker) -> Callable[[Study, str, Sequence[Run]], list[Section]]:
    """A section of the one experiment of a study, where it has runs at this scale."""

    def sections(study: Study, scale: str, runs: Sequence[Run]) -> list[Section]:
        found = groups(study, scale, runs)
        section = maker(found, scale, study.title) if found else None
        return [] if section is None else [section]

    return sections


# what `Study.section` names: (study, scale, runs) → sections
SECTIONS: dict[str, Callable[[Study, str, Sequence[Run]], list[Section]]] = {
    "gap": gap_sections,
    "copy": alone(copy_section),
    "copy connection": alone(connection_section),
    "copy beta": alone(beta_section),
    "copy weighting": alone(weighting_section),
    "copy coefficients": alone(coefficient_section),
    "text": alone(text_section),
    "pictures": alone(picture_section),
    "translation": alone(translation_section),
    "lra": lra_sections,
}


def make_sections(runs: Sequence[Run]) -> list[Section]:
    """The sections of every study that has one. One that does not say which runs it shows, shows all of its study."""
    return [
        section if section.shows else replace(section, shows=keys(study.lines, scale))
        for study in REPRODUCTIONS.values()
        if has_section(study)
        for scale in scales(runs)
        for section in SECTIONS[study.section](study, scale, runs)
    ]


def has_section(study: Study) -> bool:
    """Whether runs of the study have a section of their own; those that have none are shown side by side."""
    return study.section in SECTIONS
