"""Which sections the report has: one for each study that has runs."""

from collections.abc import Callable, Sequence

from ..experiments import REPRODUCTIONS
from ..experiments.experiment import Study
from ..experiments.pictures.picture_scales import SHAPES
from .collect import Run
from .copy_section import beta_section, coefficient_section, connection_section, copy_section, weighting_section
from .groups import Group, groups, scales
from .lra_section import lra_sections
from .picture_section import picture_section
from .section import Section
from .text_section import text_section
from .translation_section import translation_section


def make_sections(runs: Sequence[Run]) -> list[Section]:
    makers = section_makers()
    sections = []
    for scale in scales(runs):
        for study in REPRODUCTIONS.values():
            if study.then:  # its parts have sections of their own
                continue
            if study.others:
                sections += lra_sections(study, scale, runs)
                continue
            found = groups(study, scale, runs) if study.name in makers else []
            section = makers[study.name](found, scale, study.title) if found else None
            if section is not None:
                sections.append(section)
    return sections


def has_section(study: Study) -> bool:
    """Whether runs of the study are shown by it; the others are shown as runs of no study."""
    return bool(study.others or study.then) or study.name in section_makers()


def section_makers() -> dict[str, Callable[[list[Group], str, str], Section | None]]:
    return {
        "copy": copy_section,
        "copy-ablation-connection": connection_section,
        "copy-ablation-beta": beta_section,
        "copy-weighting": weighting_section,
        "copy-sweep": coefficient_section,
        "text": text_section,
        **dict.fromkeys(SHAPES, picture_section),
        "translation": translation_section,
        "translation-iwslt16": translation_section,
    }
