"""Finds streams whose chunks no longer arrive, although the thinker sends each at least a heartbeat.

A safety net: should Triton stop passing the chunks of a failed request on, nobody would tell the thinker, which would
write the answer to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOST_SECONDS = 3.0  # fifteen heartbeats
PERIOD_SECONDS = 0.5


class LostStreams:
    """Calls `give_up` for every key that has been silent for `LOST_SECONDS`, beyond what postprocess itself lags.

    Times are of the monotonic clock, which all processes of a machine share.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up
        self._sent_at: dict[str, float] = {}
        self._lag = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lost-streams", daemon=True)
        self._thread.start()

    def seen(self, key: str, sent_at: float, last: bool) -> None:
        """A chunk arrived; after the last one the key is not watched any more."""
        with self._lock:
            self._lag = time.monotonic() - sent_at
            if last:
                self._sent_at.pop(key, None)
            else:
                self._sent_at[key] = sent_at

    def close(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            for key in self.take_lost(time.monotonic()):
                self._give_up(key)

    def take_lost(self, now: float) -> list[str]:
        """Keys that are silent for too long at `now`; they are not watched any more."""
        with self._lock:
            lost = [key for key, sent_at in self._sent_at.items() if now - sent_at > LOST_SECONDS + self._lag]
            for key in lost:
                del self._sent_at[key]
        return lost
