"""The command. Heavy imports happen inside the commands, so that ``--help`` answers at once.

Exit codes: 0 done, 1 failed, 2 called wrongly, 128 + n stopped by signal n after saving a checkpoint.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softprune import __version__, recipes
from softprune.errors import ConfigError, UserError

if TYPE_CHECKING:
    from softprune.recipes.config import Config
    from softprune.training.run import Run

_CHOSEN = "SOFTPRUNE_RUN_FOLDER"
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG)  # full, or not for us

app = typer.Typer(
    help="Make neural networks sparse while they train, by soft thresholding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeArgument = Annotated[
    str, typer.Argument(help="A recipe (see `softprune recipes`).", autocompletion=lambda: list(recipes.RECIPES))
]
Settings = Annotated[list[str] | None, typer.Argument(help="Settings, `key=value`.", metavar="[KEY=VALUE]...")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softprune {__version__}")
        raise typer.Exit


@app.callback()
def softprune(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None: ...


@app.command(no_args_is_help=False)
def train(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY=VALUE]...",
            help="A recipe and changes to it.",
            autocompletion=lambda: list(recipes.RECIPES),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; a new one under runs/ if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    smoke: Annotated[bool, typer.Option(help="A few steps on synthetic data, to see that all holds together.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress bar.")] = False,
) -> None:
    """Train and prune a network.

    Without arguments: S-LATS on scikit-learn's digits, under a minute on two CPU cores.

        softprune train                                       # the default, digits/slats

        softprune train digits/pgh-1e-5 final=0.3 epochs=20   # a recipe, changed

        softprune train resnet50/slats data=/data/imagenet    # the paper's main result

        softprune train digits/slats target=0.95              # ask for a sparsity

        softprune train --resume runs/digits-slats-1          # after a crash, a kill, a reboot

    `softprune recipes` lists recipes; `softprune recipes digits/slats` shows every setting that can be changed.
    """
    from softprune.training.run import Run

    words = settings or []
    if resume is not None:
        if words or smoke or out:
            raise ConfigError("`--resume` goes on with a run as it is: leave recipe, settings, --out and --smoke away.")
        _finish(Run.open(resume), quiet)
        return
    recipe = recipes.get(words.pop(0) if words and "=" not in words[0] else recipes.DEFAULT)
    config = (recipe.smoke() if smoke else recipe.config).override(words).located()
    run = _create(recipe.name, out, config)
    try:
        _finish(run, quiet)
    except (UserError, OSError):  # about the data, or about this machine
        run.withdraw()
        raise


@app.command("recipes")
def list_recipes(
    name: Annotated[
        str | None, typer.Argument(help="Show this one.", autocompletion=lambda: list(recipes.RECIPES))
    ] = None,
) -> None:
    """List the recipes, or show one with all its settings and what they mean."""
    if name is None:
        for recipe in recipes.RECIPES.values():
            typer.echo(f"{recipe.name:28} {recipe.expect}")
        return
    recipe = recipes.get(name)
    typer.echo(
        f"{recipe.name}\n\nreproduces  {recipe.reproduces}\nexpect      {recipe.expect}\ncost        {recipe.cost}\n"
    )
    for setting, meaning in recipe.config.meanings().items():
        typer.echo(f"{setting:32} {meaning}")


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="A run's folder, a checkpoint, or a safetensors file.")],
    markdown: Annotated[bool, typer.Option(help="Print markdown.")] = False,
) -> None:
    """Print the sparsity of a run or of a model file, layer by layer."""
    from softprune.report.report import Report, summarize_tensors
    from softprune.training import weights
    from softprune.training.run import Run

    if not path.exists():
        raise ConfigError(f"There is no file or folder {path}.")
    run = Run.open(path) if path.is_dir() else None
    complete = run.outcome if run is not None else None
    if complete is not None:
        result = Report.from_dict(complete["report"])
    else:
        source = run.newest_weights() if run is not None else path
        tensors = weights.read(source)
        result = summarize_tensors(tensors, run.config.exclude if run is not None else ())
    typer.echo(result.to_markdown() if markdown else str(result))
    if run is not None and complete is None:
        typer.echo(f"{run.progress()} The table is of {source.name}.")
    for name, value in (complete or {}).get("figures", {}).items():
        typer.echo(f"{name}: {value:,.4g}")


@app.command("eval")
def evaluate(
    run: Annotated[Path, typer.Argument(help="A complete run's folder.")],
    settings: Settings = None,
) -> None:
    """Measure the accuracy of a run's model file again, on the run's data or on other: `data=...`."""
    from softprune.training.run import Run

    accuracy, count = Run.open(run).evaluate(settings or [])
    typer.echo(f"Accuracy {accuracy:.2%} on {count:,} images.")


@app.command()
def frontier(
    recipe: RecipeArgument,
    settings: Settings = None,
    final: Annotated[str, typer.Option(help="Final thresholds, `0.1,0.2,0.5`.")] = "",
    targets: Annotated[str, typer.Option(help="Or sparsities to end at, `0.8,0.9,0.95`.")] = "",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs.")] = None,
    smoke: Annotated[bool, typer.Option(help="A few steps on synthetic data.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress bar.")] = False,
) -> None:
    """Accuracy against sparsity: a run for each final threshold, or target. Started again, it does what is missing."""
    from softprune.training.frontier import walk

    chosen = recipes.get(recipe)
    config = (chosen.smoke() if smoke else chosen.config).override(settings or []).located()
    if bool(final) == bool(targets):
        raise ConfigError("A frontier needs either `--final 0.1,0.2` or `--targets 0.8,0.9`.")
    key, text = ("final", final) if final else ("target", targets)
    folder = out or Path("runs") / f"frontier-{recipe.replace('/', '-')}{'' if final else '-targets'}"
    stopped = walk(config, key, _numbers("final" if final else "targets", text), folder, progress=_shown(quiet))
    if stopped is not None:
        raise typer.Exit(128 + stopped)


@app.command()
def schedules(
    final: Annotated[float, typer.Option(help="D, the threshold at the end.")] = 1.0,
    steps: Annotated[int, typer.Option(min=1, help="T, the length of training.")] = 1000,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs, for LATS by epochs.")] = 10,
    lr: Annotated[str, typer.Option(help="Learning-rate curves: cosine, polynomial, constant, step.")] = "cosine",
    beta: Annotated[str, typer.Option(help="PGH's decays, `0.1,1e-5`.")] = "0.1,1e-5,1e-10",
    out: Annotated[Path, typer.Option(file_okay=False, help="Where the plots go.")] = Path("schedules"),
) -> None:
    """Draw and tabulate thresholds and the penalties they imply under given learning-rate curves."""
    from softprune.training.drawings import tabulate_and_draw

    for line in tabulate_and_draw(final, steps, epochs, lr.split(","), _numbers("beta", beta), out):
        typer.echo(line)


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part]
    except ValueError:
        raise ConfigError(f"`--{option}` must be numbers with commas between, as 0.1,0.2. Got {text!r}.") from None
    if not numbers:
        raise ConfigError(f"`--{option}` must hold at least one number, as 0.1,0.2.")
    return numbers


def _create(name: str, out: Path | None, config: Config) -> Run:
    """A run in ``--out``, or in the first free one of runs/digits-slats-1, -2, ...; the processes of a launch agree on
    it, and those of two launches never do."""
    from softprune.training.run import Run

    if chosen := out or os.environ.get(_CHOSEN):
        return Run.create(Path(chosen), config)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("Several processes need to agree on a folder: write `--out FOLDER`.")
    stem, number = name.replace("/", "-"), 1
    while True:
        while (folder := Path("runs") / f"{stem}-{number}").exists():
            number += 1
        try:
            run = Run.create(folder, config, claim=True)
        except FileExistsError:
            continue  # somebody else was faster
        os.environ[_CHOSEN] = str(folder)  # inherited by the processes that Lightning launches
        return run


def _shown(quiet: bool) -> bool:
    """Whether to show a progress bar: in a terminal, not in a log file."""
    return not quiet and sys.stdout.isatty()


def _finish(run: Run, quiet: bool) -> None:
    """Train, and say where things are, in one of the processes."""
    from softprune.training.launch import first_process, part

    say = typer.echo if first_process() else _silent
    try:
        outcome = run.train(say, progress=_shown(quiet))
    except KeyboardInterrupt:  # before training, or after it: what was saved is not touched
        say(f"Interrupted. Go on with: softprune train --resume {run.folder}")
        raise typer.Exit(128 + signal.SIGINT) from None
    part()
    if outcome.stopped_by is not None:
        say(f"Stopped; everything is saved. Go on with: softprune train --resume {run.folder}")
        raise typer.Exit(128 + outcome.stopped_by)
    if outcome.accuracy is not None:
        say(f"Accuracy {outcome.accuracy:.2%} at {outcome.sparsity:.2%} sparsity. See {run.folder}/report.md")


def _silent(_: str) -> None: ...


def main() -> None:
    """The entry point: errors that are the user's to mend are sentences, without a traceback."""
    try:
        app()
    except UserError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        typer.echo(f"Error: cannot read or write {error.filename or 'a file'}: {error.strerror}.", err=True)
        sys.exit(1)
