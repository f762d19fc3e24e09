//! Where threads were executing when the CPUs' sampling clocks interrupted them.

use serde::{Deserialize, Serialize};

use crate::frame::Frame;

/// Samples of monitored threads, one for each period of each CPU's clock. They say how often, not how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Time between two samples of a CPU's clock.
    pub period_ns: u64,
    /// All samples of monitored threads, including those whose stack is unknown.
    pub total: u64,
    /// Of these, samples inside calls; the others were taken between calls.
    pub in_calls: u64,
    /// Samples of soft interrupts on top of monitored threads; they are not in `total`.
    pub in_interrupts: u64,
    /// Samples that could not be kept; they are not in `total`.
    pub lost: u64,
    /// The program's own functions, with their samples between calls and in the calls that they made; the most
    /// samples first.
    pub functions: Vec<SampledFunction>,
    /// The most samples first.
    pub stacks: Vec<SampledStack>,
    /// Samples of `total` whose stacks are beyond the end of the list `stacks`.
    pub in_further_stacks: u64,
}

/// One of the program's own functions, with the library functions and calls that it makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledFunction {
    pub function: String,
    /// The line with the most of its samples; the module where there is no debug information.
    pub place: Option<String>,
    pub samples: u64,
    /// Of these, samples inside calls.
    pub in_calls: u64,
    /// The function of a library, or the call, in which most of its samples were; null if most were in its own
    /// code.
    pub inside: Option<String>,
}

/// Samples of one call, or of the time between calls, with one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampledStack {
    pub comm: String,
    /// `(user)`: between calls.
    pub syscall: String,
    /// Innermost first. Places are functions and lines, without offsets; empty if the stack is unknown.
    pub frames: Vec<Frame>,
    pub samples: u64,
}

/// The function with the most samples of a cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledPlace {
    pub function: String,
    /// As in [`SampledFunction`].
    pub place: Option<String>,
    pub inside: Option<String>,
    pub samples: u64,
    /// The number of samples of that cause.
    pub of: u64,
}

/// With fewer samples it is unknown where most of the time went.
const LEAST: u64 = 5;
/// A function has a clear part of the samples if the lower end of its share's interval is at least this.
const CLEAR: f64 = 1.0 / 3.0;

impl Samples {
    /// A copy with only as many of the stacks as fit into this many bytes of text.
    pub fn within(&self, most_bytes: usize) -> Samples {
        let mut bytes = 0;
        let fits = |stack: &&SampledStack| {
            bytes += stack
                .frames
                .iter()
                .map(|frame| frame.to_string().len() + 4)
                .sum::<usize>();
            bytes <= most_bytes
        };
        let stacks: Vec<SampledStack> = self.stacks.iter().take_while(fits).cloned().collect();
        let left_out = self.stacks[stacks.len()..].iter();
        let left_out: u64 = left_out.map(|stack| stack.samples).sum();
        Samples {
            in_further_stacks: self.in_further_stacks.saturating_add(left_out),
            stacks,
            ..self.clone()
        }
    }

    /// The function with the most samples between calls, if it has a clear part of them.
    pub fn computing(&self) -> Option<SampledPlace> {
        let of = self.total.saturating_sub(self.in_calls);
        self.clear(of, |function| {
            function.samples.saturating_sub(function.in_calls)
        })
    }

    /// The function whose calls have the most samples, if it has a clear part of those in calls.
    pub fn in_kernel(&self) -> Option<SampledPlace> {
        self.clear(self.in_calls, |function| function.in_calls)
    }

    fn clear(&self, of: u64, part: impl Fn(&SampledFunction) -> u64) -> Option<SampledPlace> {
        let most = self
            .functions
            .iter()
            .max_by_key(|function| part(function))?;
        let samples = part(most);
        let is_clear = of >= LEAST && interval(samples, of).0 >= CLEAR;
        is_clear.then(|| SampledPlace {
            function: most.function.clone(),
            place: most.place.clone(),
            inside: most.inside.clone(),
            samples,
            of,
        })
    }
}

/// The 95 % confidence interval of a share of which `part` of `of` samples were seen: Wilson's interval, which
/// holds for few samples and for shares near 0 and 1.
pub fn interval(part: u64, of: u64) -> (f64, f64) {
    const Z: f64 = 1.96;
    if of == 0 {
        return (0.0, 1.0);
    }
    let n = of as f64;
    let share = part as f64 / n;
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, samples: u64, in_calls: u64) -> SampledFunction {
        SampledFunction {
            function: name.to_string(),
            samples,
            in_calls,
            ..SampledFunction::default()
        }
    }

    fn samples(functions: Vec<SampledFunction>) -> Samples {
        Samples {
            total: functions.iter().map(|function| function.samples).sum(),
            in_calls: functions.iter().map(|function| function.in_calls).sum(),
            functions,
            ..Samples::default()
        }
    }

    #[test]
    fn an_interval_is_wide_with_few_samples_and_inside_of_what_can_be() {
        // Values of the formula as printed in tables.
        let (low, high) = interval(8, 10);
        assert!((low - 0.490).abs() < 0.001 && (high - 0.943).abs() < 0.001);
        let (low, high) = interval(10, 10);
        assert!((low - 0.722).abs() < 0.001 && high > 0.999_999);
        let (low, high) = interval(0, 10);
        assert!(low < 1e-9 && (high - 0.278).abs() < 0.001);
        assert_eq!(interval(0, 0), (0.0, 1.0));
        let (low, high) = interval(7500, 10_000);
        assert!(high - low < 0.02);
    }

    #[test]
    fn a_function_is_named_if_it_has_a_clear_part() {
        let most = samples(vec![function("fill", 90, 0), function("add", 28, 0)]);
        let place = most.computing().expect("a place");
        assert_eq!(
            (place.function.as_str(), place.samples, place.of),
            ("fill", 90, 118)
        );
        let even = samples((0..4).map(|_| function("one of many", 25, 0)).collect());
        assert_eq!(even.computing(), None);
        let few = samples(vec![function("fill", 4, 0)]);
        assert_eq!(few.computing(), None);
    }

    #[test]
    fn stacks_for_which_there_is_no_room_are_counted() {
        let stack = |samples| SampledStack {
            frames: vec!["x".repeat(96).into()],
            samples,
            ..SampledStack::default()
        };
        let all = Samples {
            stacks: vec![stack(9), stack(5), stack(2)],
            in_further_stacks: 4,
            ..Samples::default()
        };
        let few = all.within(250);
        assert_eq!((few.stacks.len(), few.in_further_stacks), (2, 6));
        assert_eq!(all.within(1000), all);
    }

    #[test]
    fn samples_in_calls_count_for_their_callers_and_not_as_computing() {
        let both = samples(vec![function("writes", 60, 58), function("adds", 20, 0)]);
        let computing = both.computing().expect("a place");
        assert_eq!((computing.function.as_str(), computing.of), ("adds", 22));
        let calling = both.in_kernel().expect("a place");
        assert_eq!((calling.function.as_str(), calling.of), ("writes", 58));
    }
}
