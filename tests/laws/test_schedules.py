"""The laws of a threshold schedule. A new schedule is one more line in ``SCHEDULES``."""

import copy
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import pytest

import softprune as sp
from softprune import curves

D, T = 0.3, 40


@dataclass(frozen=True)
class Jumps:
    """A user's own curve, with jumps where no panel of the quadrature ends."""

    def __call__(self, x: float) -> float:
        return 1.0 if x < 0.3 else 0.1 if x < 0.7123 else 0.01


SCHEDULES = [
    sp.Sine(D, T),
    sp.Linear(D, T),
    sp.Log2(D, T),
    sp.SLATS(D, T),
    sp.SLATS(D, T, lr=curves.Polynomial(0.9)),
    sp.SLATS(D, T, lr=curves.Steps(at=(0.3, 0.7123), factor=0.1)),
    sp.SLATS(D, T, lr=Jumps()),
    sp.PGH(D, T, beta=0.1),
    sp.PGH(D, T, beta=1e-10),
    sp.PGH(D, T, beta=math.nextafter(1.0, 0.0)),
    sp.PGH(D, T, beta=5e-324),
    sp.PGH(D, T, beta=0.1, lr=Jumps()),
    sp.CosineLATS(D, epochs=8, batches=5),
    sp.CosineLATS(D, epochs=1, batches=T),
    sp.Constant(D, start=1),
]
LATER = [replace(s, start=T // 4) for s in SCHEDULES if "start" in (f.name for f in fields(s))]
LAST = [replace(s, start=T - 1) for s in LATER]

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES + LATER + LAST, ids=str)
each_delayed_schedule = pytest.mark.parametrize("schedule", LATER + LAST, ids=str)


@each_schedule
def test_it_begins_at_zero_and_ends_at_final_exactly(schedule):
    assert schedule(0) == 0.0
    assert schedule(T) == D
    assert all(isinstance(schedule(t), float) for t in (0, 1, T // 2, T, T + 1))


@each_schedule
def test_it_never_falls_and_never_passes_final(schedule):
    ds = [schedule(t) for t in range(T + 1)]
    assert all(later >= earlier * (1 - 1e-15) for earlier, later in pairwise(ds))
    assert max(ds) <= D


@each_schedule
def test_past_the_last_step_it_stays_at_final(schedule):
    assert [schedule(t) for t in (T + 1, 2 * T, 10**9)] == [D] * 3


@each_schedule
def test_it_is_proportional_to_final(schedule):
    double = replace(schedule, final=2 * D)
    assert [double(t) for t in range(T + 1)] == pytest.approx([2 * schedule(t) for t in range(T + 1)], rel=1e-14, abs=0)


@each_schedule
def test_without_a_final_threshold_nothing_is_pruned(schedule):
    nothing = replace(schedule, final=0.0)
    assert [nothing(t) for t in range(T + 2)] == [0.0] * (T + 2)


@each_delayed_schedule
def test_before_the_start_it_is_zero_and_just_after_it_is_not(schedule):
    first = schedule.start if isinstance(schedule, sp.Constant) else schedule.start + 1
    assert [schedule(t) for t in range(first)] == [0.0] * first
    assert schedule(first) > 0


@pytest.mark.parametrize("schedule", LATER[:3], ids=str)
def test_a_delayed_shape_by_hand_is_the_whole_shape_in_less_time(schedule):
    whole = replace(schedule, start=0, steps=T - schedule.start)
    assert [schedule(t + schedule.start) for t in range(whole.steps)] == pytest.approx(
        [whole(t) for t in range(whole.steps)], abs=1e-15
    )


@pytest.mark.parametrize(
    "schedule",  # with β = 5e-324 the undelayed schedule is over before the delayed one begins
    [s for s in LATER if isinstance(s, sp.SLATS) or (isinstance(s, sp.PGH) and s.beta > 1e-100)],
    ids=str,
)
def test_a_delayed_integral_keeps_the_penalty_of_the_undelayed_up_to_a_factor(schedule):
    """Growth from step to step is growth of the undelayed schedule, rescaled: the lr curve is the run's own."""
    whole = replace(schedule, start=0)
    factor = D / (D - whole(schedule.start))
    tolerance = 1e-3 if isinstance(schedule.lr, Jumps) else 1e-13  # jumps cost 1e-4 of their height
    for t in range(schedule.start, T):
        growth = factor * (whole(t + 1) - whole(t))
        assert schedule(t + 1) - schedule(t) == pytest.approx(growth, abs=tolerance * factor)


@each_schedule
def test_a_schedule_is_a_frozen_equal_hashable_printable_picklable_value(schedule):
    names = {**vars(sp), **vars(curves), "Jumps": Jumps}
    for other in (pickle.loads(pickle.dumps(schedule)), copy.deepcopy(schedule), eval(repr(schedule), names)):
        assert other == schedule
        assert hash(other) == hash(schedule)
        assert repr(other) == repr(schedule)
        assert [other(t) for t in range(T + 1)] == [schedule(t) for t in range(T + 1)]
    assert schedule != replace(schedule, final=2 * D)
    with pytest.raises(FrozenInstanceError):
        schedule.final = 1.0


def test_schedules_are_equal_only_to_their_like():
    everyone = SCHEDULES + LATER + LAST
    assert len(set(everyone)) == len(everyone)


def test_schedules_and_the_bridge_import_the_standard_library_alone():
    package = Path(sp.__file__).parent
    source = f"""
import importlib, sys, types
before = set(sys.modules)
package = types.ModuleType("softprune")
package.__path__ = [{str(package)!r}]
sys.modules["softprune"] = package
for name in ("curves", "slats", "penalty"):
    importlib.import_module("softprune.schedules." + name)
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(roots - set(sys.stdlib_module_names) - {{"softprune"}}))
print(sys.modules["softprune.schedules.slats"].SLATS(1.0, 4)(4))
"""
    done = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, text=True)
    assert (done.stdout.split("\n")[:2], done.stderr) == (["[]", "1.0"], "")
