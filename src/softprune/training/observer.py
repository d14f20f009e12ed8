"""Networks that have more to tell than their accuracy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable


class Observation(Protocol):
    """What an observer saw, for the files of a run."""

    def figures(self) -> dict[str, float]:
        """Numbers by name, one or a few, by which runs are compared."""

    def to_dict(self) -> dict[str, Any]: ...

    def to_markdown(self) -> str: ...


class Observer(AbstractContextManager[Any], Protocol):
    """Watches the network between ``with`` and its end; every process then asks for the result."""

    def result(self) -> Observation: ...


@runtime_checkable
class Observed(Protocol):
    """A network whose last evaluation is to be watched."""

    def observer(self) -> Observer: ...
