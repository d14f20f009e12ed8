"""Set up a virtual environment of its own and run something in it. Needs Python 3.11 or newer, and nothing else.

    python3 dev.py demo [--cpu]     # the main job, on embedded data
    python3 dev.py test [--cpu]     # linters, types, layering, docs, tests

``--cpu`` asks for the CPU build of torch instead of the platform's default.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")

DEMO = [["softprune", "train"]]
TEST = [
    ["ruff", "check"],
    ["ruff", "format", "--check"],
    ["mypy"],
    ["lint-imports", "--no-logo"],
    ["mkdocs", "build", "--strict", "--quiet"],
    ["pytest", "-q", "--durations=10", "-n", "2", "--dist", "loadfile"],
]


def run(command: list[str], env: dict[str, str]) -> None:
    print("$", *command, flush=True)
    code = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, env=env).returncode
    if code:
        sys.exit(code)


def environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["VIRTUAL_ENV"] = str(VENV)
    env["NO_MKDOCS_2_WARNING"] = "1"  # Material's banner
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", "")
    return env


def install(extra: str, cpu: bool, env: dict[str, str]) -> None:
    if not VENV.exists():
        venv.create(VENV, with_pip=True)
    run(["python", "-m", "pip", "install", "--quiet", "uv"], env)
    choice: list[str] = []
    if cpu and env.get("PIP_FIND_LINKS"):  # a folder of wheels: take torch from there or fail, never a CUDA build
        env = {**env, "UV_FIND_LINKS": env["PIP_FIND_LINKS"]}
        choice = ["--constraint", "constraints-cpu.txt", "--override", "overrides-cpu.txt"]
    elif cpu:
        choice = ["--torch-backend", "cpu"]
    run(["uv", "pip", "install", "--quiet", *choice, "--editable", f".[{extra}]"], env)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["demo", "test"])
    parser.add_argument("--cpu", action="store_true", help="install the CPU build of torch")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - said before pip would say it worse
        sys.exit("softprune needs Python 3.11 or newer.")
    env = environment()
    install("train" if options.job == "demo" else "dev", options.cpu, env)
    for command in DEMO if options.job == "demo" else TEST:
        run(command, env)


if __name__ == "__main__":
    main()
