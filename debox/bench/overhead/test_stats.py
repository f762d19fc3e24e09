# SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
"""python3 -m unittest discover debox/bench/overhead"""

import unittest

import stats


class Summaries(unittest.TestCase):
    def test_quartiles_bound_the_median(self):
        summary = stats.summarize([5.0, 1.0, 3.0, 2.0, 4.0])
        self.assertEqual((summary.low, summary.median, summary.high), (2.0, 3.0, 4.0))
        self.assertEqual(summary.count, 5)
        self.assertAlmostEqual(summary.spread, 2 / 3)

    def test_few_samples_spread_from_least_to_greatest(self):
        summary = stats.summarize([3.0, 1.0])
        self.assertEqual((summary.low, summary.median, summary.high), (1.0, 2.0, 3.0))

    def test_one_sample_has_no_spread(self):
        self.assertEqual(stats.summarize([7.0]).spread, 0.0)


class Pairs(unittest.TestCase):
    def test_a_slow_round_does_not_change_the_ratio(self):
        bare = {0: 100.0, 1: 300.0, 2: 100.0}
        slower = {0: 200.0, 1: 600.0, 2: 200.0}
        self.assertEqual(stats.ratios(slower, bare), [2.0, 2.0, 2.0])

    def test_rounds_without_a_partner_are_left_out(self):
        self.assertEqual(stats.ratios({0: 2.0, 1: 9.0}, {0: 1.0}), [2.0])
        self.assertEqual(stats.differences({0: 2.0, 1: 9.0}, {1: 1.0}), [8.0])


class Verdicts(unittest.TestCase):
    def test_interval_of_six_is_all_of_them(self):
        self.assertEqual(stats.median_interval([4.0, 1.0, 6.0, 2.0, 5.0, 3.0]), (1.0, 6.0))

    def test_interval_narrows_with_more_samples(self):
        # From binomial tables: of 20 samples, the 6th and the 15th enclose the median with 95.9 % confidence.
        self.assertEqual(stats.median_interval([float(i) for i in range(1, 21)]), (6.0, 15.0))

    def test_interval_of_one(self):
        self.assertEqual(stats.median_interval([3.0]), (3.0, 3.0))

    def test_sure_when_all_samples_agree(self):
        self.assertEqual(stats.verdict([1.1] * 6, 1.2), "met")
        self.assertEqual(stats.verdict([1.3] * 6, 1.2), "not met")

    def test_unsure_when_the_limit_lies_among_the_samples(self):
        self.assertEqual(stats.verdict([1.0, 1.1, 1.3], 1.2), "met, within the noise")
        self.assertEqual(stats.verdict([1.1, 1.3, 1.4], 1.2), "not met, within the noise")

    def test_noise_makes_a_verdict_unsure(self):
        noise = stats.noise([0.99, 1.0, 1.02])
        self.assertAlmostEqual(noise, 0.02)
        self.assertEqual(stats.verdict([1.01] * 6, 1.015, noise), "met, within the noise")
        self.assertEqual(stats.verdict([1.03] * 6, 1.015, noise), "not met, within the noise")
        self.assertEqual(stats.verdict([1.04] * 6, 1.015, noise), "not met")


if __name__ == "__main__":
    unittest.main()
