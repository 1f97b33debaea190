"""The study of the gap: equal parameters, the rate chosen on validation data, and one command that does it all."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from momentum_transformer.cli import main
from momentum_transformer.commands.queue import run_queue
from momentum_transformer.commands.queue_state import queue_state
from momentum_transformer.commands.reproduce import run_study
from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.experiment import Study, Variant
from momentum_transformer.experiments.gap import APART, FITTED, GAP, GAP_MODELS, GAP_TASKS, SIZED, WHOLE
from momentum_transformer.experiments.runs import Request
from momentum_transformer.experiments.sizes import parameter_count, state_bytes
from momentum_transformer.experiments.study_runs import Plan, asked, at_rate, best_of, finished_in, requests
from momentum_transformer.training.run_directory import RunDirectory

TOY = Study("toy", "Toy", "recall", (Variant("linear", rates=(1.0, 1 / 3, 3.0)), Variant("softmax")))


def pretend(request: Request, root: Path, loss: float) -> None:
    """A finished run whose validation loss was this one at its best."""
    run = RunDirectory(request.directory(root))
    run.create({"experiment": request.experiment})
    for value in (2 * loss, loss, 1.5 * loss):
        run.append_metrics({"kind": "validation", "step": 0, "loss": value})
    run.append_metrics({"kind": "concluded", "step": 0})


def test_every_run_of_the_study_is_possible_and_has_a_directory_of_its_own() -> None:
    for scale in ("tiny", "small"):
        wanted = [request for request, _ in requests(GAP, scale, 1)]
        for request in wanted:
            _ = request.config
        assert len({request.directory(Path()) for request in wanted}) == len(wanted)


def test_a_run_that_several_parts_of_the_study_ask_for_is_listed_counted_and_started_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = asked("recall", WHOLE, "small").directory(tmp_path)
    assert sum(asked(name, v, "small").directory(tmp_path) == shared for name, v in GAP.lines) > 1
    with pytest.raises(SystemExit):
        main(["reproduce", "gap", "--dry-run", "--runs", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert len(set(lines)) == len(lines)
    with pytest.raises(SystemExit):
        main(["reproduce", "gap", "--slurm", "--runs", str(tmp_path)])
    tasks = [line.partition(")")[2] for line in capsys.readouterr().out.splitlines() if ") exec" in line]
    assert len(set(tasks)) == len(tasks) == len(lines)
    everything = queue_state(GAP, scale="small", seeds=1, runs=tmp_path, results=tmp_path / "results")
    assert len(everything) == len(lines)


def test_the_study_has_every_task_and_model_and_the_convolution_for_those_without() -> None:
    assert {task.experiment for task in GAP_TASKS} == {
        *("recall", "recall-rewrite", "selective-copy", "parity", "s3", "regression"),
        *("text", "copy", "mnist", "cifar10"),
    }
    lengths = [
        Request("copy", "linear", "small", 0, t.settings).config.data.length for t in GAP_TASKS if "copy " in t.label
    ]
    assert sorted(lengths) == [32, 64, 128]
    plain = [v.model for v in GAP_MODELS if not {"model.convolution=on", "model.decay=false"} & {*v.settings}]
    assert plain == [
        *("softmax", "linear", "momentum", "adaptive-momentum", "gated-momentum", "retention"),
        *("delta", "gated-delta", "momentum-delta", "hybrid"),
    ]
    convolved = [variant.model for variant in GAP_MODELS if "model.convolution=on" in variant.settings]
    assert convolved == ["softmax", "linear", "momentum"]
    assert [v.model for v in GAP_MODELS if "model.decay=false" in v.settings] == ["momentum-delta"]
    assert all(len(variant.rates) == 3 for variant in GAP_MODELS)


@pytest.mark.parametrize("experiment", ["recall", "copy", "text", "mnist"])
def test_parameter_counts_are_equal_within_two_percent(experiment: str) -> None:
    softmax = parameter_count(Request(experiment, "softmax", "small"))
    for variant in GAP_MODELS:
        count = parameter_count(asked(experiment, variant, "small"))
        assert abs(count / softmax - 1) < 0.02, (variant.model, count, softmax)
    bare = parameter_count(Request(experiment, "gated-delta", "small"))
    assert bare / softmax > 1.02  # without the budget they would not be


def test_a_budget_that_cannot_be_kept_is_refused() -> None:
    request = Request("recall", "gated-delta", "tiny", 0, (FITTED, "model.feedforward=4", "model.heads=1"))
    with pytest.raises(ValueError, match=r"model\.budget: gated-delta has more parameters"):
        parameter_count(request)


def test_the_best_rate_on_validation_data_gets_the_other_seeds(tmp_path: Path) -> None:
    def wanted() -> list[tuple[str, int, float]]:
        found = requests(TOY, "small", 2, finished=finished_in(tmp_path))
        return [(r.model, r.seed, r.config.train.learning_rate) for r, _ in found]

    first = [("linear", 0, 0.003), ("softmax", 0, 0.003), ("linear", 0, 0.001), ("linear", 0, 0.009)]
    assert wanted() == [*first, ("softmax", 1, 0.003)]  # linear waits for its rates
    one = asked("recall", TOY.variants[0], "small")
    for factor, loss in ((1.0, 0.5), (1 / 3, 0.7), (3.0, 0.4)):
        assert best_of([at_rate(one, f) for f in (1.0, 1 / 3, 3.0)], finished_in(tmp_path)) is None
        pretend(at_rate(one, factor), tmp_path, loss)
    assert wanted() == [*first, ("linear", 1, 0.009), ("softmax", 1, 0.003)]
    fewer = [(r.model, r.seed) for r, _ in requests(TOY, "small", 2, rates=1, finished=finished_in(tmp_path))]
    assert fewer == [("linear", 0), ("softmax", 0), ("linear", 1), ("softmax", 1)]


@pytest.mark.parametrize("queue", [True, False])
def test_rates_then_seeds_and_what_is_finished_is_kept(
    queue: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    for _ in range(2):
        if queue:
            assert run_queue(Plan(TOY, "tiny", 2, runs), tmp_path / "results")
        else:
            assert run_study(Plan(TOY, "tiny", 2, runs))
    linear = sorted(path.name for path in (runs / "recall" / "linear").iterdir())
    assert len(linear) == 4  # three rates, and the second seed at one of them
    losses = {}
    for name in linear[:3]:
        lines = RunDirectory(runs / "recall" / "linear" / name).metrics()
        losses[name] = min(line["loss"] for line in lines if line["kind"] == "validation")
    assert linear[3] == min(losses, key=lambda name: losses[name]).replace("seed0", "seed1")
    if not queue:
        assert capsys.readouterr().out.count("finished already") == 6


def test_the_state_of_softmax_grows_and_that_of_the_others_does_not() -> None:
    sizes = {(v.model, n): state_bytes(asked("recall", v, "small"), n) for v in SIZED for n in (16, 128)}
    for model in {variant.model for variant in SIZED}:
        if model == "softmax":
            assert sizes[model, 128] == 8 * sizes[model, 16]
        else:
            assert sizes[model, 128] == sizes[model, 16]
    heads = [state_bytes(asked("recall", v, "small"), 16) for v in SIZED if v.model == "gated-delta"]
    assert heads == sorted(set(heads))


def test_reproduce_gap_runs_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a few models of the tasks that need no files: all of them take minutes."""
    kept = ("softmax", "linear", "momentum-delta")

    def thin(study: Study) -> Study:
        return replace(study, variants=tuple(v for v in study.variants if v.model in kept)[:4])

    made = [thin(study) for study in GAP.then if study.experiment in ("recall", "s3", "regression")]
    monkeypatch.setitem(REPRODUCTIONS, "gap", replace(thin(replace(GAP, then=())), then=tuple(made)))
    runs, report = tmp_path / "runs", tmp_path / "report"
    words = ["reproduce", "gap", "--scale", "tiny", "--rates", "1", "--runs", str(runs), "--report", str(report)]
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
    assert "finished already" in capsys.readouterr().out
    assert (report / "index.html").is_file()
    provenance = json.loads(next(runs.rglob("provenance.json")).read_text())
    assert provenance["load"] is None or provenance["load"] >= 0
    (ended,) = (
        line for line in RunDirectory(next(runs.rglob("config.json")).parent).metrics() if line["kind"] == "end"
    )
    assert ended["cpu_seconds"] > 0


def test_tasks_that_take_a_member_apart_are_tasks_of_the_gap() -> None:
    assert {task.label for task in APART} == {"recall", "selective-copy", "copy 32", "text"}
    assert REPRODUCTIONS["gap"] is GAP
