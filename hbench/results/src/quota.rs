// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a program takes that a quota of CPU time stops again and again.

/// Phases of the period in which a program may start. The period goes on whether it runs or not.
const PHASES: u32 = 50;

/// In each period, a control group may run for `cpus` times the period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    pub cpus: f64,
    pub period_ns: f64,
}

/// Over all phases in which the program may start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elapsed {
    pub mean_ns: f64,
    /// Standard deviation.
    pub deviation_ns: f64,
}

impl Quota {
    /// `free_ns`: how long the program would take without the quota, in which it would work for `work_ns`, evenly.
    pub fn elapsed(&self, work_ns: f64, free_ns: f64) -> Elapsed {
        // While it runs it uses up the period's time after so long.
        let until_stopped_ns = self.cpus * self.period_ns * free_ns / work_ns;
        if until_stopped_ns.is_nan() || until_stopped_ns >= self.period_ns {
            return Elapsed {
                mean_ns: free_ns,
                deviation_ns: 0.0,
            };
        }
        let from = |phase: u32| {
            let to_end_ns = self.period_ns * (f64::from(phase) + 0.5) / f64::from(PHASES);
            // The group was idle, so it has a whole period's time at once.
            let left_ns = free_ns - to_end_ns.min(until_stopped_ns);
            if left_ns <= 0.0 {
                return free_ns;
            }
            let whole = (left_ns / until_stopped_ns).ceil() - 1.0;
            to_end_ns + whole * self.period_ns + (left_ns - whole * until_stopped_ns)
        };
        let found: Vec<f64> = (0..PHASES).map(from).collect();
        let mean_ns = found.iter().sum::<f64>() / f64::from(PHASES);
        let squares = found.iter().map(|ns| (ns - mean_ns).powi(2)).sum::<f64>();
        Elapsed {
            mean_ns,
            deviation_ns: (squares / f64::from(PHASES)).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Quota = Quota {
        cpus: 0.5,
        period_ns: 100.0,
    };

    #[test]
    fn what_waits_long_enough_is_not_stopped() {
        for (work, free) in [(40.0, 100.0), (500.0, 1000.0), (0.0, 10.0)] {
            let found = HALF.elapsed(work, free);
            assert_eq!((found.mean_ns, found.deviation_ns), (free, 0.0));
        }
    }

    #[test]
    fn a_long_program_takes_as_many_periods_as_it_needs() {
        // 10,000 ns of work at full speed: 50 in each period of 100. At its end it need not wait for the period's end.
        let found = HALF.elapsed(10_000.0, 10_000.0);
        assert!((19_900.0..20_000.0).contains(&found.mean_ns), "{found:?}");
        assert!((10.0..40.0).contains(&found.deviation_ns), "{found:?}");
        // Two threads use it up twice as fast.
        let two = HALF.elapsed(10_000.0, 5000.0);
        assert!((19_850.0..20_000.0).contains(&two.mean_ns), "{two:?}");
    }

    #[test]
    fn a_short_program_is_stopped_only_if_it_starts_late() {
        // 30 of 50: whole if it starts early; if the period ends meanwhile, there is new time.
        let found = HALF.elapsed(30.0, 30.0);
        assert!((found.mean_ns - 30.0).abs() < 1e-9, "{found:?}");
        // 70: in half of the phases 50 run at once and 20 in the next period.
        let found = HALF.elapsed(70.0, 70.0);
        assert!(
            (70.0..130.0).contains(&found.mean_ns) && found.deviation_ns > 5.0,
            "{found:?}"
        );
    }
}
