"""The kernels' library is built once, by whichever compiler there is, and checked by sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from softprune.engine import build, native
from softprune.engine.build import CompilerError
from softprune.errors import ArgumentError

PLAIN = build.VARIANTS[-1]
QUICK = ("-O0",)


def test_a_library_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = build.library(PLAIN, QUICK)
    made = place.stat().st_mtime_ns
    assert build.library(PLAIN, QUICK) == place
    assert place.stat().st_mtime_ns == made
    assert [p.name for p in place.parent.iterdir()] == [place.name]
    assert native.Library(str(place)).name == "plain"


@pytest.mark.slow
def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    code = f"from softprune.engine import build; print(build.library(build.VARIANTS[-1], {QUICK!r}))"
    command = [sys.executable, "-c", code]
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    workers = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (place,) = {worker.communicate(timeout=300)[0].strip() for worker in workers}
    assert native.Library(place).name == "plain"


def test_without_a_compiler_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CompilerError, match=r"need a C compiler.*Install one"):
        build.library(PLAIN)


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such instruction >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CompilerError, match="no such instruction"):
        build.library(PLAIN)
    assert not list((tmp_path / "softprune").iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CompilerError, match="XDG_CACHE_HOME"):
        build.library(PLAIN)


def test_the_key_knows_flags_and_compiler() -> None:
    path = build.compiler()
    assert build._key(path, ("-O1",)) != build._key(path, ("-O2",))


def test_a_compiler_that_does_not_know_a_variant_builds_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\ncase "$*" in *-mavx*) exit 1;; esac\nexec {build.compiler()} "$@" -O0\n')
    old.chmod(0o755)
    monkeypatch.setenv("CC", str(old))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.load.__wrapped__().name in ("plain", "neon", "i8mm")


def test_another_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="plain"):
        native.load("sse9")


def test_plain_runs_everywhere() -> None:
    assert build.available()[-1].name == "plain"


@pytest.mark.slow
@pytest.mark.parametrize("variant", [v.name for v in build.available() if v.name != "avxvnni"])
def test_sanitizers_find_nothing(variant: str, tmp_path: Path) -> None:
    """The tests of the kernels again, with a library that looks at every address and every overflow."""
    chosen = next(v for v in build.VARIANTS if v.name == variant)
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    library = build.library(chosen, flags)
    runtimes = [
        subprocess.run(
            [build.compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(path.strip() for path in runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "SOFTPRUNE_TEST_LIBRARY": f"{variant}={library}",
        "OMP_NUM_THREADS": "1",
    }
    here = Path(__file__).parent
    tests = [str(here / name) for name in ("test_native.py", "test_plan.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not gpu",
        "-k",
        f"{variant} or plan",
        *tests,
    ]
    result = subprocess.run(
        command, env=environment, cwd=here.parent.parent, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
