# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""All samples of a run, by suite, peer and round."""

from dataclasses import dataclass, field

import stats
from peers import BARE
from sample import Sample
from workloads import Suite


@dataclass
class SuiteResult:
    suite: Suite
    samples: dict[str, dict[int, Sample]] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # peer -> why it is not shown
    dropped: list[str] = field(default_factory=list)  # single samples, with the reason
    rounds: int = 0
    crowded: int = 0  # rounds in which another tracer was running

    def times(self, peer: str, workload: str) -> dict[int, float]:
        return {at: sample.times[workload] for at, sample in self.samples.get(peer, {}).items()}

    def values(self, peer: str, name: str) -> dict[int, float]:
        return {at: sample.values[name] for at, sample in self.samples.get(peer, {}).items()}

    def ratios(self, peer: str, workload: str) -> list[float]:
        return list(self.ratios_by_round(peer, workload).values())

    def ratios_by_round(self, peer: str, workload: str) -> dict[int, float]:
        return stats.ratios_by_round(self.times(peer, workload), self.times(BARE, workload))


class Results(list[SuiteResult]):
    def of(self, workload: str) -> SuiteResult | None:
        return next((result for result in self if workload in result.suite.workloads), None)

    def ratios(self, peer: str, workload: str) -> list[float]:
        result = self.of(workload)
        return result.ratios(peer, workload) if result else []

    def ratios_by_round(self, peer: str, workload: str) -> dict[int, float]:
        result = self.of(workload)
        return result.ratios_by_round(peer, workload) if result else {}
