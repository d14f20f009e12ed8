"""The command. Heavy imports happen inside the commands, so that ``--help`` and wrong calls are answered at once.

Exit codes: 0 done, 1 failed, 2 called wrongly, 128 + n stopped by signal n after saving a checkpoint.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softprune import __version__, recipes
from softprune.errors import ConfigError, UserError, listing, needs
from softprune.training import launch, names, settings
from softprune.training.headline import headline

if TYPE_CHECKING:
    from softprune.recipes.config import Config
    from softprune.training.run import Progress, Run, Say

_DISK = (  # a disk that is full, or a path that is not for us
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.ENOTDIR),
)

_UNKNOWN_ARE_WORDS = {"ignore_unknown_options": True}  # to answer `--lr 0.1` with `lr=0.1`

app = typer.Typer(
    help="Make neural networks sparse while they train, by soft thresholding.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _recipe_or_setting(incomplete: str) -> list[str]:
    return [*(name for name in recipes.RECIPES if name.startswith(incomplete)), *settings.complete(incomplete)]


RecipeArgument = Annotated[
    str, typer.Argument(help="A recipe (see `softprune recipes`).", autocompletion=lambda: list(recipes.RECIPES))
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(help="Changes to its settings.", metavar="KEY=VALUE", autocompletion=settings.complete),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, and in a log no line for each epoch.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="A smoke test: a few steps on synthetic data.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"softprune {__version__}")
        raise typer.Exit


@app.callback()
def softprune(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command(no_args_is_help=False, context_settings=_UNKNOWN_ARE_WORDS)
def train(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="See `softprune recipes`.", autocompletion=_recipe_or_setting),
    ] = None,
    words: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; a new one under runs/ if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    smoke: Smoke = False,
    quiet: Quiet = False,
) -> None:
    """Train and prune a network.

    Without arguments: S-LATS on scikit-learn's digits, under a minute on two CPU cores.

        softprune train                                       # the default, digits/slats

        softprune train digits/pgh-1e-5 final=0.3 epochs=20   # a recipe, changed

        softprune train resnet50/slats data=/data/imagenet    # the paper's main result

        softprune train digits/target target=0.95             # ask for a sparsity

        softprune train gpt_small/target                      # a small language model, 90% sparse

        softprune train --resume runs/digits-slats-1          # after a crash, a kill, a reboot

    `softprune recipes` lists recipes; `softprune recipes digits/slats` shows every setting that can be changed.
    """
    words = [*([recipe] if recipe else []), *(words or [])]
    _refuse_options(words)
    launch.forget_leftovers(typer.echo)
    if resume is not None:
        if words or smoke or out:
            raise ConfigError("`--resume` goes on with a run as it is: drop recipe, settings, --out and --smoke.")
        _finish(_run().open(resume), quiet)
        return
    name = words.pop(0) if words and "=" not in words[0] else recipes.DEFAULT
    config = _settings(name, words, smoke)
    run = _run().create(out, config) if out else _run().claim(name.replace("/", "-"), config)
    _finish(run, quiet)


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
    for choice, about in settings.choices(recipe.config).items():
        typer.echo(f"{choice:32} {about}")
    typer.echo("\nAll settings, what they mean and what else they can be:\n")
    for setting, meaning in settings.meanings(recipe.config).items():
        typer.echo(f"{setting:32} {meaning}")


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="A run's folder, a checkpoint, or a safetensors file.")],
    markdown: Annotated[bool, typer.Option(help="Print markdown.")] = False,
) -> None:
    """Print the sparsity of a run or of a model file, layer by layer."""
    from softprune.training import tables
    from softprune.training.folder import Folder

    if not path.exists():
        raise ConfigError(f"There is no file or folder {path}.")
    folder = Folder.open(path) if path.is_dir() else None
    outcome = folder.outcome if folder is not None else None
    if folder is None:
        result, remark = tables.of_weights(path), ""
    elif outcome is not None:
        result, remark = tables.of_run(folder), ""
    else:
        source = folder.newest_weights()
        result, remark = tables.of_weights(source, folder.config.exclude), f" The table is of {source.name}."
    typer.echo(_printable(result.to_markdown() if markdown else str(result)))
    if folder is not None and outcome is None:
        typer.echo(f"{folder.progress()}{remark}")
    if outcome is not None and outcome["small"] is not None:
        typer.echo(_printable(str(outcome["small"].get("remark", ""))))
    _echo_figures(outcome["figures"] if outcome else {})


@app.command("eval")
def evaluate(
    run: Annotated[Path, typer.Argument(help="A complete run's folder.")],
    words: Settings = None,
) -> None:
    """Measure a complete run again, on its own data or on others (`data=FOLDER`); the small network too, if something
    died that could be removed."""
    opened = _run("eval").open(run)
    measured = opened.evaluate(words or [])
    typer.echo(f"Accuracy {measured.accuracy:.2%} on {measured.count:,} {measured.unit}.")
    _echo_figures(measured.figures())
    if opened.has_small:
        measured = opened.evaluate(words or [], of_small=True)
        typer.echo(f"The small network: accuracy {measured.accuracy:.2%}.")
        _echo_figures(measured.figures())


@app.command(context_settings=_UNKNOWN_ARE_WORDS)
def frontier(
    recipe: RecipeArgument,
    words: Settings = None,
    final: Annotated[str, typer.Option(help="Final thresholds, `0.1,0.2,0.5`.")] = "",
    targets: Annotated[str, typer.Option(help="Or sparsities to end at, `0.8,0.9,0.95`.")] = "",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs.")] = None,
    smoke: Smoke = False,
    quiet: Quiet = False,
) -> None:
    """Accuracy against sparsity: a run for each final threshold, or target. Started again, it does what is missing."""
    _refuse_options([recipe, *(words or [])])
    launch.forget_leftovers(typer.echo)
    config = _settings(recipe, words or [], smoke, check=False)
    if bool(final) == bool(targets):
        raise ConfigError("A frontier needs either `--final 0.1,0.2` or `--targets 0.8,0.9`.")
    key, text = ("final", final) if final else ("target", targets)
    values = _numbers("final" if final else "targets", text)
    folder = out or Path("runs") / f"frontier-{recipe.replace('/', '-')}{'' if final else '-targets'}"
    needs("lightning.pytorch", "Lightning", "softprune frontier")
    from softprune.training.frontier import walk

    _launch(
        lambda say: walk(config, key, values, folder, say, _progress(quiet)),
        f"Start the same command again to go on in {folder}.",
    )


@app.command(context_settings=_UNKNOWN_ARE_WORDS)
def bench(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_RECIPE", help="A run's folder, or a recipe.")],
    words: Settings = None,
) -> None:
    """Time a sparse network on every runtime that is installed: torch, onnxruntime, OpenVINO, and the engine.

        softprune bench runs/digits-target-1                    # with its own weights and data

        softprune bench resnet50/slats target=0.9 pattern=block4    # random weights, before anybody trains it

    At batch 1 and 16, on one thread and on all, in one interleaved run for each. It takes some minutes.
    `pip install 'softprune[bench]'` brings the other runtimes.
    """
    _refuse_options([what, *(words or [])])
    is_run = Path(what).is_dir()
    if is_run and words:
        raise ConfigError(f"A run is timed as it is: drop {listing(words, most=3)}.")
    config = None if is_run else _settings(what, words or [], smoke=False)
    from softprune.bench.comparison import Candidate, compare, unmeasured
    from softprune.bench.machine import cores
    from softprune.bench.runtimes import Work
    from softprune.training.subject import Subject

    subject = Subject.of_run(Path(what)) if config is None else Subject.of_recipe(config)
    typer.echo(_printable(subject.title))
    done = []
    for batch in (1, 16):
        work = Work.of(subject.network, subject.samples, batch)
        found = compare(Candidate.all(work), sorted({1, cores()}))
        for comparison in found:
            typer.echo(_printable(f"\n{comparison}"))
        done += found
    typer.echo("\n".join(["", *map(_printable, unmeasured(done))]))


@app.command()
def schedules(
    final: Annotated[float, typer.Option(help="D, the threshold at the end.")] = 1.0,
    steps: Annotated[int, typer.Option(min=1, help="T, the length of training.")] = 1000,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs, for LATS by epochs and epoch-cosine.")] = 10,
    lr: Annotated[str, typer.Option(help=f"Learning-rate curves: {', '.join(names.LR_CURVES)}.")] = "cosine",
    beta: Annotated[str, typer.Option(help="PGH's decays, `0.1,1e-5`.")] = "0.1,1e-5,1e-10",
    out: Annotated[Path, typer.Option(file_okay=False, help="Where the plots go.")] = Path("schedules"),
) -> None:
    """Draw and tabulate thresholds and the penalties they imply under given learning-rate curves."""
    betas = _numbers("beta", beta)
    needs("matplotlib", "Matplotlib", "softprune schedules")
    from softprune.training.drawings import tabulate_and_draw

    for line in tabulate_and_draw(final, steps, epochs, lr.split(","), betas, out):
        typer.echo(line)


def _refuse_options(words: list[str]) -> None:
    """A setting written as an option, or an option that does not exist."""
    for word, value in zip_longest(words, words[1:], fillvalue="..."):
        name, equals, after = word.lstrip("-").partition("=")
        if word.startswith("-"):
            known = settings.complete(name)
            hint = f" Write `{name}={after if equals else value}`." if f"{name}=" in known else ""
            raise ConfigError(f"There is no option `{word}`.{hint}")


def _settings(name: str, words: list[str], smoke: bool, check: bool = True) -> Config:
    """The settings of a run, refused without torch where that is possible."""
    recipe = recipes.get(name)
    config = names.located((recipe.smoke() if smoke else recipe.config).override(words))
    if check:
        settings.check(config)
    return config


def _run(command: str = "train") -> type[Run]:
    needs("lightning.pytorch", "Lightning", f"softprune {command}")
    from softprune.training.run import Run

    return Run


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part]
    except ValueError:
        raise ConfigError(f"`--{option}` must be numbers with commas between, as 0.1,0.2. Got {text!r}.") from None
    if not numbers:
        raise ConfigError(f"`--{option}` must hold at least one number, as 0.1,0.2.")
    return numbers


def _progress(quiet: bool) -> Progress:
    """A bar in a terminal, lines in a log file."""
    return None if quiet else "bar" if sys.stdout is not None and sys.stdout.isatty() else "lines"


def _finish(run: Run, quiet: bool) -> None:
    """Train, and say where things are."""

    def work(say: Say) -> int | None:
        outcome = run.train(say, _progress(quiet))
        if outcome.accuracy is not None:
            told = headline(run.config, outcome.accuracy, outcome.figures)
            say(f"{told} at {outcome.sparsity:.2%} sparsity. See {run.folder}/report.md")
        return outcome.stopped_by

    _launch(work, f"Go on with: softprune train --resume {run.folder}")


def _launch(work: Callable[[Say], int | None], again: str) -> None:
    """Do the work of one process of a launch, which returns the signal that stopped it, if one did. The first process
    speaks for all of them; ``again`` tells how to go on after a stop."""
    say = _say if launch.first_process() else _silent
    try:
        stopped_by = work(say)
    except KeyboardInterrupt:  # before training, or after it: what was saved is not touched
        say(f"Interrupted. {again}")
        raise typer.Exit(128 + signal.SIGINT) from None
    launch.leave_group()
    if stopped_by is not None:
        say(f"Stopped; everything is saved. {again}")
        raise typer.Exit(128 + stopped_by)


def _say(text: str) -> None:
    """Print, and train on if nobody reads it any more: `softprune train | head`."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _silent(_: str) -> None: ...


def _echo_figures(figures: dict[str, float]) -> None:
    for name, value in figures.items():
        typer.echo(_printable(f"{name}: {value:,.4g}"))


def _printable(text: str) -> str:
    """Names come from files; escape codes in them would reach the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def main() -> None:
    """The entry point: errors that the user can correct are printed as sentences, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without μ gets a question mark
    launch.open_queues()
    try:
        app()
    except UserError as error:
        typer.echo(f"Error: {_printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        name = error.filename.decode() if isinstance(error.filename, bytes) else error.filename
        typer.echo(f"Error: cannot read or write {name or 'a file'}: {error.strerror}.", err=True)
        sys.exit(1)
