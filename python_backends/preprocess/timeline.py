"""When the frames of a video are shown, and which of them are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from python_backends.preprocess.processor_config import FRAMES_PER_SECOND, VideoSettings

_JITTER = 0.05  # of a frame's duration: what clocks and rounding do to a constant rate
_RATE_TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class Timeline:
    """The times of all frames in the order in which they are shown, in units of `time_base` seconds."""

    times: NDArray[np.int64]  # [frames], at least one
    span: int  # from the first frame's start to the last one's end
    time_base: Fraction
    rate: Fraction | None  # frames a second, if that is constant

    @classmethod
    def of(cls, times: Sequence[int], last: int, time_base: Fraction, nominal: Fraction | None) -> Timeline:
        """From the frames' times in any order, how long the last one stays (0: not known), and the rate in the header.

        Raises:
            ValueError: no frames, or several that are all shown at the same time.
        """
        if not times:
            raise ValueError("no frames")
        ordered = np.sort(np.asarray(times, np.int64))
        count, spread = len(ordered), int(ordered[-1]) - int(ordered[0])
        if count == 1:
            alone = 1 / (last * time_base) if last > 0 else Fraction(FRAMES_PER_SECOND)
            return cls(ordered, max(last, 1), time_base, nominal or alone)
        if spread == 0:
            raise ValueError("frames that are all shown at once")
        step = Fraction(spread, count - 1)
        expected = np.arange(count) * float(step)
        steady = np.abs(ordered - ordered[0] - expected).max() <= max(1.0, _JITTER * float(step)) + 1e-6
        rate = None
        if steady:
            rate = 1 / (step * time_base)
            if nominal and abs(float(nominal / rate) - 1.0) <= _RATE_TOLERANCE:
                rate = nominal  # the header knows it better than rounded times
        return cls(ordered, spread + (last if last > 0 else round(step)), time_base, rate)

    @property
    def duration(self) -> float:
        """Seconds."""
        if self.rate is not None:
            return float(len(self.times) / self.rate)
        return float(self.span * self.time_base)

    def sample(self, settings: VideoSettings) -> list[int]:
        """The times of the frames to take: see `decode_video`. An even number, for temporal patches of two."""
        total, patch = len(self.times), settings.temporal_patch_size
        wanted = min(max(self.duration * FRAMES_PER_SECOND, settings.min_frames), settings.max_frames)
        if self.rate is not None:
            count = max(int(min(wanted, total)) // patch * patch, patch)
            return [int(self.times[i * total // count]) for i in range(count)]
        count = max(int(wanted) // patch * patch, patch)
        moments = [int(self.times[0]) + i * self.span // count for i in range(count)]
        return [int(self.times[i - 1]) for i in np.searchsorted(self.times, moments, side="right")]
