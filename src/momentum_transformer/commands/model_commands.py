"""Draw, write, translate and label with trained models; hand them on, or put them on a page."""

from pathlib import Path

from .. import options
from ..experiments.configuration import ConfigurationError
from ..experiments.runs import experiment_of
from ..experiments.shipped import DRAWS, WRITES, shipped_run, shipped_runs
from ..generation.tokens import Sampling
from ..install import install_hint
from ..training.allocator import keep_freed_memory
from ..training.run_directory import RunError
from .dispatch import CONSOLE, run_command
from .drawing import generate_pictures
from .places import need_file, need_folder
from .predicting import predict_labels
from .translating import translate_text
from .writing import write_text


@run_command.register
def _(command: options.Generate) -> int:
    run = command.run or shipped_run(DRAWS if command.prompt is None else WRITES)
    if run is None:
        raise RunError(
            "this package comes without such a model; make one: momentum train text --source FILE, or momentum train "
            "digits, then: momentum generate RUN"
        )
    heat = {} if command.temperature is None else {"temperature": command.temperature}
    if experiment_of(run) == "text":
        try:
            sampling = Sampling(top_k=command.top_k, top_p=command.top_p, seed=command.seed, **heat)
        except ValueError as error:
            raise ConfigurationError(f"--{error}") from None
        write_text(
            run,
            prompt="\n" if command.prompt is None else command.prompt,
            tokens=command.tokens,
            sampling=sampling,
            stop=command.stop,
            checkpoint=command.checkpoint,
        )
        return 0
    need_file("--out", command.out)
    need_file("--gif", command.gif)
    need_folder("--singles", command.singles)
    generate_pictures(
        run,
        count=command.count,
        temperature=heat.get("temperature", 1.0),
        seed=command.seed,
        offset=command.offset,
        out=command.out or (command.run / "samples" / "drawn.png" if command.run else Path("grid.png")),
        gif=command.gif,
        singles=command.singles,
        checkpoint=command.checkpoint,
        data_dir=command.data_dir,
        console=CONSOLE,
    )
    return 0


@run_command.register
def _(command: options.Translate) -> int:
    keep_freed_memory()
    translate_text(
        command.run,
        text=command.text,
        out=command.out,
        refinements=command.refine,
        until_fixed=command.until_fixed,
        show_steps=command.show_steps,
        batch=command.batch,
        checkpoint=command.checkpoint,
    )
    return 0


@run_command.register
def _(command: options.Predict) -> int:
    predict_labels(
        command.run,
        text=command.text,
        out=command.out,
        form=command.format,
        text_column=command.text_column,
        batch=command.batch,
        checkpoint=command.checkpoint,
    )
    return 0


@run_command.register
def _(command: options.Export) -> int:
    try:
        from transformers.utils.logging import disable_progress_bar

        from ..hf.export import export_run
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"export needs {error.name}: {install_hint('hf')}") from None
    need_folder("OUT", command.out)
    disable_progress_bar()
    export_run(command.run, command.out, checkpoint=command.checkpoint)
    CONSOLE.print(f"exported: {command.out}", soft_wrap=True)
    return 0


@run_command.register
def _(command: options.Serve) -> int:
    try:
        from ..web.served_runs import load_models
        from ..web.server import address, new_token, open_socket, serve
        from ..web.studio import Studio
        from ..web.training_view import Watch
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the page needs {error.name}: {install_hint('web')}") from None
    runs = command.runs or shipped_runs()
    if not runs:
        raise RunError("there is no model to serve yet; make one: momentum train digits, then: momentum serve runs")
    with open_socket(command.host, command.port) as listening:
        loaded = load_models(runs, command.data_dir)
        missing = loaded.missing
        token = new_token(listening)
        if token is not None:
            missing.append("others can reach this page: whoever has this link may use this machine's models")
        for line in missing:
            CONSOLE.print(line, soft_wrap=True)
        names = loaded.names
        shown = f"{len(names)} models" if len(names) > 1 else names[0] if names else "no model yet, but runs to watch"
        CONSOLE.print(f"{shown}: {address(listening, token)} (Ctrl-C stops)", soft_wrap=True)
        watch = Watch(command.runs or (Path("runs"),), *(() if command.runs else runs))
        serve(Studio(*loaded[:3]), watch, listening, host=command.host, token=token)
    CONSOLE.print("stopped")
    return 0
