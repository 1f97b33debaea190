"""One line of the table: how many faults, and what they cost."""

from typing import Any

SHOWN = 5  # reasons kept of each kind


class Row:
    def __init__(self, what: str) -> None:
        self.what = what
        self.faults = 0
        self.counts = {"stuck": 0, "lost": 0, "different": 0}
        self.reasons: list[str] = []

    def _count(self, kind: str, reason: str) -> None:
        if reason:
            self.counts[kind] += 1
            if self.counts[kind] <= SHOWN:
                self.reasons.append(f"{kind}: {reason}")

    def stuck(self, reason: str) -> None:
        """The same command did not come to its end, or not in one clear line where it could not."""
        self._count("stuck", reason)

    def lost(self, reason: str) -> None:
        """Something that had been saved is gone."""
        self._count("lost", reason)

    def different(self, reason: str) -> None:
        """The end is not that of a run without faults."""
        self._count("different", reason)

    def record(self) -> dict[str, Any]:
        return {"what": self.what, "faults": self.faults, **self.counts, "reasons": self.reasons}
