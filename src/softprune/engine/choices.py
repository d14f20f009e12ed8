"""How a sparse layer is run: how panels are walked, whether rows are paired. ``Compiled`` measures, this remembers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softprune.engine.formats import ONE, VECTOR, Entries, Form
from softprune.engine.native import Arena, Library
from softprune.engine.steps import Draft


@dataclass(frozen=True)
class Choice:
    """Pieces of at most so many vectors; the form of the entries."""

    piece: int
    form: Form


def walk(count: int, piece: int) -> list[int]:
    """Cut a panel into pieces of like length.

    >>> walk(7, 4), walk(7, 8), walk(7, 3), walk(8, 3)
    ([4, 3], [7], [3, 2, 2], [3, 3, 2])
    """
    pieces = -(-count // piece)
    return [count // pieces + (i < count % pieces) for i in range(pieces)]


class Choices:
    """What was measured and the entries that were made, so that another batch size need not begin anew."""

    def __init__(self, library: Library) -> None:
        self.best: dict[tuple[object, ...], Choice] = {}
        self._arena = Arena(library)
        self._tried: dict[tuple[object, ...], Entries] = {}
        self._kept: dict[tuple[object, ...], Entries] = {}

    def entries(self, draft: Draft, form: Form) -> Entries:
        """To try them."""
        if draft.entries is None:
            raise ValueError("Only sparse layers have entries.")
        key = self._format(draft, form)
        if key in self._kept:
            return self._kept[key]
        if key not in self._tried:
            self._tried[key] = draft.entries(form)
        return self._tried[key]

    def keep(self, draft: Draft, form: Form) -> Entries:
        """To run them; whatever else was tried is forgotten."""
        entries = self.entries(draft, form)
        self._tried.clear()
        key = self._format(draft, form)
        if key not in self._kept:
            self._kept[key] = replace(entries, words=self._arena.put(entries.words))
        return self._kept[key]

    def _format(self, draft: Draft, form: Form) -> tuple[object, ...]:
        window = draft.window
        return (draft.name, form, (window.taps, window.packed) if window else draft.loop.stride)

    def key(self, draft: Draft, threads: int) -> tuple[object, ...]:
        return (draft.name, draft.loop, draft.window and draft.window.packed, threads)


FIRST_CACHE = 24 * 1024  # bytes of a panel that stay in it beside everything else


def candidates(draft: Draft, widest: int) -> list[Choice]:
    """All that are worth trying; a kernel holds at most ``widest`` vectors at once.

    In int8 rows may be paired, or 16 go together where pixels are few. Values of int16 and fp32 are larger, so that a
    panel of many channels leaves the first cache: there slices of the channels may take turns.
    """
    longest = max(draft.loop.counts)
    walks = {tuple(walk(longest, piece)): piece for piece in (1, 2, 3, 4, 8) if piece <= widest}
    found = [Choice(piece, ONE) for piece in walks.values()]
    if draft.kind == "sparse8":
        found += [Choice(piece, Form(paired=True)) for piece in walks.values() if "real" not in draft.arrays]
        return found + [Choice(1, Form(few=True))] * draft.few
    vectors = draft.window.packed if draft.window else longest
    for piece in (4, 8):
        share = min(longest, piece) / longest
        for cache in (FIRST_CACHE, 2 * FIRST_CACHE):
            slices = min(draft.numbers["inputs"], -(-int(draft.numbers["inputs"] * vectors * VECTOR * share) // cache))
            choice = Choice(piece, Form(slices=slices))
            if slices > 1 and piece in walks.values() and choice not in found:
                found.append(choice)
    return found
