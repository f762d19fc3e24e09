# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""Medians, spreads, ratios, and whether a ratio is within its limit.

Other work on the machine slows down neighbouring samples equally. Each sample is therefore divided by
the bare sample of its own round, and the median is taken of these ratios, not of the times.
"""

from dataclasses import dataclass
from math import comb
from statistics import median, quantiles

CONFIDENCE = 0.95


@dataclass
class Summary:
    """Median and spread of samples."""

    median: float
    low: float  # first quartile; the least sample if there are fewer than four
    high: float  # third quartile, or the greatest sample
    count: int

    @property
    def spread(self) -> float:
        """Distance between the quartiles, relative to the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(samples: list[float]) -> Summary:
    if len(samples) < 4:
        return Summary(median(samples), min(samples), max(samples), len(samples))
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return Summary(middle, low, high, len(samples))


def ratios_by_round(samples: dict[int, float], base: dict[int, float]) -> dict[int, float]:
    """Ratios of samples to the base, both by round; rounds that lack one of them are left out."""
    return {number: value / base[number] for number, value in samples.items() if base.get(number)}


def ratios(samples: dict[int, float], base: dict[int, float]) -> list[float]:
    return list(ratios_by_round(samples, base).values())


def differences(samples: dict[int, float], base: dict[int, float]) -> list[float]:
    """Differences of samples to the base, both by round."""
    return [value - base[number] for number, value in samples.items() if number in base]


def median_interval(samples: list[float]) -> tuple[float, float]:
    """An interval that contains the true median with CONFIDENCE, from the order statistics.

    With fewer than six samples no interval has that confidence; it is then the whole range.
    """
    ordered = sorted(samples)
    count = len(ordered)
    outside = 0.0
    cut = 0
    while cut < count // 2:
        outside += 2 * comb(count, cut) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut += 1
    cut = max(cut, 1)
    return ordered[cut - 1], ordered[count - cut]


def verdict(samples: list[float], limit: float, noise: float = 0.0) -> str:
    """Whether the median is within the limit, and whether the samples suffice to be certain.

    `noise` is how far the median of a ratio may be from the true value for other reasons.
    """
    low, high = median_interval(samples)
    if median(samples) <= limit:
        return "met" if high + noise <= limit else "met, within the noise"
    return "not met" if low - noise > limit else "not met, within the noise"


def noise(ratios_of_equals: list[float]) -> float:
    """How far the median of ratios that should all be 1 may be from 1."""
    low, high = median_interval(ratios_of_equals)
    return max(abs(1 - low), abs(high - 1))
