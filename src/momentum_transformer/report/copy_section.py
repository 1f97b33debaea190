"""One section of the report per study: its figure, its table beside the paper's numbers, and what held."""

from ..experiments.copy import PAPER_SECONDS_PER_EPOCH, STEPS_PER_EPOCH
from . import figures
from .groups import Group
from .section import Section, separated
from .tables import Table, spread


def copy_section(found: list[Group], scale: str, title: str) -> Section:
    rows = [
        (
            group.label,
            spread(group.final("loss"), 4),
            spread(group.final("accuracy"), 4),
            spread([run.steps_to(0.9) for run in group.runs], 0),
            group.cpu_seconds(STEPS_PER_EPOCH, 2),
            f"{PAPER_SECONDS_PER_EPOCH[group.model]:.1f}",
            str(group.seeds),
        )
        for group in found
    ]
    columns = (
        "model",
        "final loss",
        "final accuracy",
        "steps to 90 % accuracy",
        "CPU s per 100 steps",
        "paper: s per 100 steps",
        "seeds",
    )
    loss = {group.model: group.final("loss") for group in found}
    claims = (
        ("momentum", "linear", "Momentum attention converges to a lower loss than linear attention"),
        ("momentum", "reformer", "Momentum attention converges to a lower loss than Reformer"),
        ("adaptive-momentum", "linear", "Adaptive momentum converges to a lower loss than linear attention"),
        ("adaptive-momentum", "momentum-connection", "Adaptive momentum does better than the tuned connection"),
        ("softmax", "momentum", "Softmax converges to the lowest loss"),
    )
    findings = tuple(
        f"{text}: {separated(loss[better], loss[worse])}."
        for better, worse, text in claims
        if better in loss and worse in loss
    )
    config = found[0].runs[0].config
    intro = (
        f"Scale {scale}: sequences of {config.data.length} tokens, width {config.model.width}, "
        f"{config.model.depth} layers, {config.train.steps} steps of {config.train.batch_size} sequences. "
        "Lines are means over seeds, bands go from the lowest to the highest. The paper's seconds were measured on "
        "a GPU at its full size; compare them with each other, not with ours."
    )
    table = Table(f"{title}, scale {scale}", columns, tuple(rows))
    return Section(f"copy-{scale}", f"{title}, scale {scale}", intro, figures.curves(found), table, findings)


def _sweep_section(
    found: list[Group], reference: Group | None, scale: str, title: str, name: str, setting: str, label: str
) -> Section:
    listed = [*found, *([reference] if reference else [])]
    rows = tuple(
        (group.label, spread(group.final("loss"), 4), spread(group.final("accuracy"), 4), str(group.seeds))
        for group in listed
    )
    table = Table(f"{title}, scale {scale}", ("variant", "final loss", "final accuracy", "seeds"), rows)
    figure = figures.sweep(found, setting, label, reference)
    best = min(found, key=lambda group: group.final("loss").mean())
    findings = [f"The lowest mean loss is at {label} = {best.value(setting):g}."]
    intro = f"Scale {scale}. Each cross is one seed."
    if reference is not None:
        findings.append(
            f"{reference.label.capitalize()} is as good as the best constant value or better: "
            f"{separated(reference.final('loss'), best.final('loss'))}."
        )
    return Section(f"{name}-{scale}", f"{title}, scale {scale}", intro, figure, table, tuple(findings))


def connection_section(found: list[Group], scale: str, title: str) -> Section | None:
    constant = [group for group in found if group.has("model.connection_beta")]
    if len(constant) < 2:
        return None
    adaptive = next((group for group in found if group.model == "adaptive-momentum"), None)
    section = _sweep_section(
        constant, adaptive, scale, title, "ablation-connection", "model.connection_beta", "β of the connection"
    )
    by_beta = {group.value("model.connection_beta"): group.final("loss") for group in constant}
    if not {0.01, 0.99} <= by_beta.keys():
        return section
    verdict = separated(by_beta[0.01], by_beta[0.99])
    claim = f"The paper names 0.99 (Table 1) and 0.01 (text) as best. Is 0.01 better than 0.99: {verdict}."
    return Section(**(vars(section) | {"findings": (*section.findings, claim)}))


def beta_section(found: list[Group], scale: str, title: str) -> Section | None:
    if len(found) < 2:
        return None
    section = _sweep_section(found, None, scale, title, "ablation-beta", "model.beta", "β of the attention")
    smallest, largest = found[0], found[-1]
    claim = (
        f"The paper: smaller β is better. β = {smallest.value('model.beta'):g} better than "
        f"{largest.value('model.beta'):g}: {separated(smallest.final('loss'), largest.final('loss'))}."
    )
    return Section(**(vars(section) | {"findings": (*section.findings, claim)}))


def _coefficients(group: Group) -> tuple[float, float]:
    return group.value("model.beta"), group.value("model.gamma")


def weighting_section(found: list[Group], scale: str, title: str) -> Section | None:
    def family(weighting: str) -> list[Group]:
        return [group for group in found if group.has(f"model.weighting={weighting}")]

    # only settings that both were given are compared
    others = {_coefficients(group): group for group in family("terminal")}
    relative = [group for group in family("relative") if _coefficients(group) in others]
    terminal = [others[_coefficients(group)] for group in relative]
    if not relative:
        return None
    linear = next((group for group in found if group.model == "linear"), None)
    rows = []
    wins = 0
    for ours, theirs in zip(relative, terminal, strict=True):
        wins += bool(ours.final("loss").mean() < theirs.final("loss").mean())
        rows.append(
            (
                f"β {ours.value('model.beta'):g}, γ {ours.value('model.gamma'):g}",
                spread(ours.final("loss"), 4),
                spread(theirs.final("loss"), 4),
                separated(ours.final("loss"), theirs.final("loss")),
            )
        )
    if linear is not None:
        rows.append(("linear attention", spread(linear.final("loss"), 4), "", ""))
    best = min((*relative, *terminal), key=lambda group: group.final("loss").mean())
    findings = [
        f"The paper's weights reach a lower mean loss than the released code's in {wins} of {len(relative)} settings.",
        f"The lowest mean loss of all: {best.label}.",
    ]
    if linear is not None:
        ours = min(relative, key=lambda group: group.final("loss").mean())
        findings.append(
            f"The best exact momentum attention ({ours.label}) beats linear attention: "
            f"{separated(ours.final('loss'), linear.final('loss'))}."
        )
    columns = ("coefficients", "relative (the paper)", "terminal (released)", "relative is better")
    return Section(
        f"weighting-{scale}",
        f"{title}, scale {scale}",
        f"Scale {scale}, momentum attention with a plain residual. Final validation loss; hollow marks are seeds.",
        figures.families(
            {"relative (the paper)": relative, "terminal (the released code)": terminal},
            ((figures.COLOURS["momentum"], "^"), ("#666666", "s")),
            linear,
        ),
        Table(f"{title}, scale {scale}", columns, tuple(rows)),
        tuple(findings),
    )


def coefficient_section(found: list[Group], scale: str, title: str) -> Section | None:
    """Is a model judged by a bad step size? Each momentum model at its best β and γ."""
    linear = next((group for group in found if group.model == "linear"), None)
    models = list(dict.fromkeys(group.model for group in found if group is not linear))
    family = {model: [group for group in found if group.model == model] for model in models}
    settings = [{group.settings for group in members} for members in family.values()]
    if len(models) < 2 or any(other != settings[0] for other in settings):  # only whole sweeps are compared
        return None
    rows = [
        (
            f"β {line[0].value('model.beta'):g}, γ {line[0].value('model.gamma'):g}",
            *(spread(group.final("loss"), 4) for group in line),
        )
        for line in zip(*family.values(), strict=True)
    ]
    findings = []
    for model, members in family.items():
        best = min(members, key=lambda group: group.final("loss").mean())
        text = f"{model}: best at β = {best.value('model.beta'):g}, γ = {best.value('model.gamma'):g}"
        if linear is not None:
            text += f"; better there than linear attention: {separated(best.final('loss'), linear.final('loss'))}"
        findings.append(f"{text}.")
    if linear is not None:
        rows.append(("linear attention", spread(linear.final("loss"), 4), *[""] * (len(models) - 1)))
    seeds = sorted({group.seeds for group in found})
    return Section(
        f"sweep-{scale}",
        f"{title}, scale {scale}",
        f"Scale {scale}, the connection as in Table 1. Final validation loss; hollow marks are seeds "
        f"({' or '.join(map(str, seeds))} each). The best of several settings is chosen on the same numbers that are "
        "compared, which favours the models that have settings.",
        figures.families(family, [(figures.COLOURS[model], figures.MARKERS[model]) for model in models], linear),
        Table(f"{title}, scale {scale}", ("coefficients", *models), tuple(rows)),
        tuple(findings),
    )
