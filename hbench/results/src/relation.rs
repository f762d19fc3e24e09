// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much more one machine takes than another: for entering the kernel, for a switch, for user mode, and for what
//! is left of each primitive. Every ratio has an uncertainty.

use anyhow::{ensure, Context, Result};

use crate::machine::{Machine, Unit};
use crate::mapping::{Primitive, Wait, MAPPING};
use crate::quota::Quota;

/// Half of a 95 % interval, in standard deviations.
pub const STANDARD: f64 = 1.96;
/// Of a cost that was measured once: the standard deviation of its logarithm.
const ONCE: f64 = 0.2;
/// How far primitives differ from the user-mode ratio, before anything is known of them: by half. Where others are known,
/// one more differs from their mean by no less.
const PRIOR: f64 = 0.4;
/// Fewer primitives would not show what they have in common.
const PRIMITIVES_MIN: usize = 5;
/// Fewer benchmarks would not show how user mode differs.
const USER_MIN: usize = 3;

/// A ratio, and the standard deviation of its logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub value: f64,
    pub deviation: f64,
}

impl Ratio {
    /// Of what takes no time there.
    pub const NOTHING: Ratio = Ratio {
        value: 0.0,
        deviation: 0.0,
    };

    fn of(log: f64, deviation: f64) -> Ratio {
        Ratio {
            // Benchmarks that differ by more than this say nothing about a program.
            value: log.clamp(-14.0, 14.0).exp(),
            deviation: deviation.min(3.0),
        }
    }
}

/// The standard deviation of the logarithm of a cost.
fn deviation(unit: &Unit) -> f64 {
    match unit.interval_ns {
        Some((low, high)) => (high - low) / (2.0 * STANDARD * unit.ns),
        None => ONCE,
    }
}

/// Two machines.
#[derive(Debug)]
pub struct Relation<'a> {
    a: &'a Machine,
    b: &'a Machine,
    /// Of entering the kernel and leaving it, on A.
    pub entry_ns: f64,
    pub entry: Ratio,
    /// The benchmarks of these.
    pub entry_by: String,
    pub user: Ratio,
    /// Of a primitive of which nothing is known.
    unknown: Ratio,
}

/// What is subtracted from a cost before it is compared, and how certain that is.
#[derive(Debug, Clone, Copy, Default)]
struct Value {
    ns: f64,
    variance: f64,
}

impl Value {
    fn of(unit: &Unit) -> Value {
        Value {
            ns: unit.ns,
            variance: (deviation(unit) * unit.ns).powi(2),
        }
    }

    fn less(self, times: u32, other: Value) -> Value {
        let times = f64::from(times);
        Value {
            ns: self.ns - times * other.ns,
            variance: self.variance + times * times * other.variance,
        }
    }

    /// A mean of both.
    fn blended(self, other: Value, share: f64) -> Value {
        let own = 1.0 - share;
        Value {
            ns: own * self.ns + share * other.ns,
            variance: own * own * self.variance + share * share * other.variance,
        }
    }

    fn between(self, other: Value, part: f64) -> Value {
        Value {
            ns: self.ns + part * (other.ns - self.ns),
            variance: self.variance.max(other.variance) * part.max(1.0).powi(2),
        }
    }
}

impl<'a> Relation<'a> {
    /// # Errors
    ///
    /// A machine lacks what everything depends on.
    pub fn new(a: &'a Machine, b: &'a Machine) -> Result<Relation<'a>> {
        let entry = |machine: &Machine, which: &str| {
            let found = machine.units.get(&MAPPING.entry).copied();
            found.with_context(|| {
                format!(
                    "the vector of {which} has no cost of {}: measure all benchmarks of `hbench run`",
                    MAPPING.entry
                )
            })
        };
        let (entry_a, entry_b) = (
            entry(a, "the machine on which the application ran")?,
            entry(b, "the machine")?,
        );
        let log = (entry_b.ns / entry_a.ns).ln();
        let both = deviation(&entry_a).hypot(deviation(&entry_b));
        let user = user(a, b)?;
        let mut relation = Relation {
            a,
            b,
            entry_ns: entry_a.ns,
            entry: Ratio::of(log, both),
            entry_by: MAPPING.entry.clone(),
            user,
            unknown: Ratio::of(user.value.ln(), PRIOR),
        };
        relation.unknown = relation.common();
        Ok(relation)
    }

    /// What the ratios of all primitives have in common, and how far one differs from it: where a layer makes every call's work
    /// slower, user mode says nothing of one whose own benchmark is not known well.
    fn common(&self) -> Ratio {
        let known = MAPPING.primitives().filter(|one| !one.on_disk);
        let known = known.filter_map(|primitive| {
            let (a, b) = self.remainders(primitive, 0.0)?;
            log_ratio(a, b)
        });
        let known: Vec<(f64, f64)> = known.collect();
        match known.len() < PRIMITIVES_MIN {
            true => self.unknown,
            false => {
                let (mean, spread) = random_effects(&known);
                Ratio::of(mean, spread.max(PRIOR))
            }
        }
    }

    /// For an application of which this share of the calls comes after computing. Vectors that lack what such calls cost take
    /// all for calls that follow others.
    pub fn after_work(mut self, share: f64) -> Relation<'a> {
        let blended = |machine: &Machine| {
            let of = |name: &str| machine.units.get(name).map(Value::of);
            Some(of(&MAPPING.entry)?.blended(of(&MAPPING.after_work)?, share))
        };
        let known = blended(self.a).zip(blended(self.b));
        let Some((a, b)) = known.filter(|_| share > 0.0) else {
            return self;
        };
        let deviation = (a.variance / a.ns.powi(2) + b.variance / b.ns.powi(2)).sqrt();
        self.entry_ns = a.ns;
        self.entry = Ratio::of((b.ns / a.ns).ln(), deviation);
        self.entry_by = format!("{}, {}", MAPPING.entry, MAPPING.after_work);
        self
    }

    /// What one operation costs on A.
    pub fn cost_ns(&self, benchmark: &str) -> Option<f64> {
        Some(self.a.units.get(benchmark)?.ns)
    }

    /// The ratio of a benchmark. `None`: it was not measured on both machines.
    pub fn benchmark(&self, name: &str) -> Option<Ratio> {
        let (a, b) = (self.a.units.get(name)?, self.b.units.get(name)?);
        Some(self.shrunk(Value::of(a), Value::of(&as_many_bytes(a, b))))
    }

    /// The ratio of what a primitive takes beside its entries and switches, for transfers of so many bytes. `None`: it
    /// was not measured on both machines.
    pub fn remainder(&self, primitive: &Primitive, bytes: f64) -> Option<Ratio> {
        if primitive.on_disk && self.leaves_disk() {
            return Some(Ratio::NOTHING);
        }
        let (a, b) = self.remainders(primitive, bytes)?;
        Some(self.shrunk(a, b))
    }

    /// What is left of a primitive's cost on each machine.
    fn remainders(&self, primitive: &Primitive, bytes: f64) -> Option<(Value, Value)> {
        let value = |machine: &Machine| {
            let of = |name: &str| machine.units.get(name).map(Value::of);
            let whole = cost(machine, primitive, bytes)?;
            // A switch that could not be measured is left in.
            let switch = of(&MAPPING.switch).unwrap_or_default();
            let less = whole.less(primitive.entries, of(&MAPPING.entry)?);
            Some(less.less(primitive.switches, switch))
        };
        Some((value(self.a)?, value(self.b)?))
    }

    /// The ratio of a wait's benchmark without its entries. `None`: it was not measured on both machines.
    pub fn wait(&self, wait: &Wait) -> Option<Ratio> {
        if wait.on_disk && self.leaves_disk() {
            return Some(Ratio::NOTHING);
        }
        let value = |machine: &Machine| {
            let of = |name: &str| machine.units.get(name).map(Value::of);
            Some(of(&wait.cost)?.less(wait.entries, of(&MAPPING.entry)?))
        };
        Some(self.shrunk(value(self.a)?, value(self.b)?))
    }

    /// Whether only A stores files.
    fn leaves_disk(&self) -> bool {
        self.b.stores_nothing() && !self.a.stores_nothing()
    }

    /// What one operation takes on B that took nothing on A, because files are not stored there; and its standard
    /// deviation. `None`: A stores them, too, or B does not, or it was not measured on B.
    pub fn newly_stored_ns(&self, primitive: &Primitive) -> Option<(f64, f64)> {
        let is_new = primitive.on_disk && self.a.stores_nothing() && !self.b.stores_nothing();
        let found = cost(self.b, primitive, 0.0).filter(|_| is_new)?;
        Some((found.ns, found.variance.sqrt().hypot(PRIOR * found.ns)))
    }

    /// How much longer processes take that work at the same time. `benchmarks`: alone, and beside another one. `here`
    /// and `there`: how many run at the same time on each machine.
    pub fn together(&self, benchmarks: &[String; 2], here: f64, there: f64) -> f64 {
        self.slowed(self.b, benchmarks, there) / self.slowed(self.a, benchmarks, here)
    }

    fn slowed(&self, machine: &Machine, [alone, beside]: &[String; 2], overlap: f64) -> f64 {
        let of = |name: &String| Some(machine.units.get(name)?.ns);
        let Some(factor) = of(beside).zip(of(alone)).map(|(both, one)| both / one) else {
            return 1.0;
        };
        // The part of the work that is done while another thread works.
        let share = (2.0 * (overlap - 1.0) / overlap.max(1.0)).clamp(0.0, 1.0);
        // Two that are served in turn take twice as long; what is more is noise.
        1.0 + share * (factor.clamp(1.0, 2.2) - 1.0)
    }

    /// Where benchmarks do not tell a ratio well, what is common to all takes its place: the two are weighted by how certain
    /// each is.
    fn shrunk(&self, a: Value, b: Value) -> Ratio {
        let Some((own, variance)) = log_ratio(a, b) else {
            return self.unknown;
        };
        let spread = self.unknown.deviation.powi(2);
        let weight = spread / (spread + variance);
        let log = weight * own + (1.0 - weight) * self.unknown.value.ln();
        Ratio::of(log, (weight * variance).sqrt())
    }

    /// The geometric mean of all ratios: what one would say of the machines without knowing the application.
    pub fn mean(&self) -> f64 {
        let pairs = self.a.units.iter().filter_map(|(name, unit)| {
            let other = as_many_bytes(unit, self.b.units.get(name)?);
            Some((other.ns / unit.ns).ln())
        });
        let logs: Vec<f64> = pairs.collect();
        match logs.len() {
            0 => 1.0,
            n => (logs.iter().sum::<f64>() / n as f64).exp(),
        }
    }

    pub fn cpus(&self) -> (f64, f64) {
        (self.a.cpus(), self.b.cpus())
    }

    /// What B's control groups grant.
    pub fn quota(&self) -> Option<Quota> {
        self.b.quota()
    }
}

/// The logarithm of the ratio, and its variance. `None`: noise has left nothing of one of the two.
fn log_ratio(a: Value, b: Value) -> Option<(f64, f64)> {
    let variance = a.variance / a.ns.powi(2) + b.variance / b.ns.powi(2);
    let is_known = a.ns > 0.0 && b.ns > 0.0 && variance.is_finite();
    is_known.then(|| ((b.ns / a.ns).ln(), variance))
}

/// The mean of what differs by more than its own noise, and how far one more would be from it: a random-effects model with
/// the estimate of DerSimonian and Laird (Controlled Clinical Trials 7, 1986). Each has its variance.
fn random_effects(found: &[(f64, f64)]) -> (f64, f64) {
    // A ratio that is known exactly would be the only one that counts.
    const LEAST: f64 = 1e-4;
    let weighted = |between: f64| {
        let weights = found
            .iter()
            .map(|(value, variance)| (*value, 1.0 / (variance.max(LEAST) + between)));
        let weights: Vec<(f64, f64)> = weights.collect();
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mean = weights
            .iter()
            .map(|(value, weight)| value * weight)
            .sum::<f64>()
            / sum;
        (weights, sum, mean)
    };
    let (weights, sum, mean) = weighted(0.0);
    let squares: f64 = weights.iter().map(|(_, weight)| weight * weight).sum();
    let excess: f64 = weights
        .iter()
        .map(|(value, weight)| weight * (value - mean).powi(2))
        .sum::<f64>()
        - (found.len() as f64 - 1.0);
    let between = (excess / (sum - squares / sum)).max(0.0);
    let (_, sum, mean) = weighted(between);
    (mean, (between + 1.0 / sum).sqrt())
}

/// What B's operation costs for as many bytes as A's transfers: a buffer that does not fit into the caches has another
/// size on each machine.
fn as_many_bytes(a: &Unit, b: &Unit) -> Unit {
    let (Some(wanted), Some(own)) = (a.bytes, b.bytes.filter(|own| *own > 0)) else {
        return *b;
    };
    let scale = wanted as f64 / own as f64;
    Unit {
        ns: b.ns * scale,
        interval_ns: b.interval_ns.map(|(low, high)| (low * scale, high * scale)),
        bytes: Some(wanted),
    }
}

/// Programs use the CPU in other proportions than the mean of these benchmarks does, so the ratios' own spread is the
/// uncertainty.
fn user(a: &Machine, b: &Machine) -> Result<Ratio> {
    let ratio = |name: &String| {
        let one = a.units.get(name)?;
        let other = as_many_bytes(one, b.units.get(name)?);
        let noise = deviation(one).hypot(deviation(&other));
        Some(((other.ns / one.ns).ln(), noise * noise))
    };
    let found: Vec<(f64, f64)> = MAPPING.user.iter().filter_map(ratio).collect();
    ensure!(
        found.len() >= USER_MIN,
        "of the benchmarks of user mode ({}), both machines have {}: measure all benchmarks of `hbench run`",
        MAPPING.user.join(", "),
        found.len()
    );
    let n = found.len() as f64;
    let logs: Vec<f64> = found.iter().map(|(log, _)| *log).collect();
    let (mean, spread) = kit_stats::deviation(&logs);
    let noise = found.iter().map(|(_, variance)| variance).sum::<f64>() / (n * n);
    Ok(Ratio::of(mean, (spread * spread + noise).sqrt()))
}

/// The cost of one operation that transfers so many bytes: between two benchmarks it is interpolated, beyond the last
/// it goes on as between the last two, and before the first it is that of the first.
fn cost(machine: &Machine, primitive: &Primitive, bytes: f64) -> Option<Value> {
    let points = primitive.costs.iter().filter_map(|name| {
        let unit = machine.units.get(name)?;
        Some((
            unit.bytes.map_or(0.0, |bytes| bytes as f64),
            Value::of(unit),
        ))
    });
    let points: Vec<(f64, Value)> = points.collect();
    let (first, last) = (points.first()?, points.last()?);
    if bytes <= first.0 || points.len() == 1 {
        return Some(first.1);
    }
    let segment = points.windows(2).find(|pair| bytes <= pair[1].0);
    let (from, to) = match segment {
        Some(pair) => (pair[0], pair[1]),
        None => (points[points.len() - 2], *last),
    };
    if to.0 <= from.0 {
        return Some(to.1);
    }
    Some(from.1.between(to.1, (bytes - from.0) / (to.0 - from.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;

    fn with(scale: f64, entry: f64, more: &[(&str, f64, Option<u64>)]) -> Machine {
        let user: Vec<(&str, f64, Option<u64>)> = MAPPING
            .user
            .iter()
            .map(|name| (name.as_str(), 10.0 * scale, None))
            .collect();
        machine(&[&user, &[("call.null", entry, None)][..], more].concat())
    }

    fn primitive(name: &str) -> &'static Primitive {
        MAPPING.primitive(name).expect("it is declared")
    }

    #[test]
    fn a_layer_that_delays_each_entry_leaves_the_remainder() {
        let open = |ns| [("file.open/hot", ns, None)];
        let plain = with(1.0, 100.0, &open(2000.0));
        let traced = with(1.0, 9000.0, &open(19_800.0));
        let relation = Relation::new(&plain, &traced).expect("they have what is needed");
        assert!((relation.entry.value - 90.0).abs() < 1e-6);
        assert!((relation.user.value - 1.0).abs() < 1e-9);
        // 1,800 ns are left on each.
        let found = relation
            .remainder(primitive("file.open"), 0.0)
            .expect("both have it");
        assert!((found.value - 1.0).abs() < 0.01, "{found:?}");
        assert!(found.deviation > 0.003, "{found:?}");
    }

    #[test]
    fn calls_after_computing_have_their_own_cost() {
        let plain = with(1.0, 100.0, &[("call.after-work", 200.0, None)]);
        let sandbox = with(1.0, 3000.0, &[("call.after-work", 30_000.0, None)]);
        let of = |a, b, share| Relation::new(a, b).expect("whole").after_work(share);
        let found = of(&plain, &sandbox, 0.25);
        assert!((found.entry_ns - 125.0).abs() < 1e-9);
        assert!((found.entry.value - (0.75 * 3000.0 + 0.25 * 30_000.0) / 125.0).abs() < 1e-9);
        assert_eq!(found.entry_by, "call.null, call.after-work");
        let older = with(1.0, 3000.0, &[]);
        for (b, share) in [(&older, 0.25), (&sandbox, 0.0)] {
            let found = of(&plain, b, share);
            assert_eq!(
                (found.entry_ns, found.entry_by.as_str()),
                (100.0, "call.null")
            );
            assert!((found.entry.value - 30.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_noise_hides_is_taken_from_user_mode() {
        let plain = with(1.0, 100.0, &[("file.fstat", 101.0, None)]);
        let slow = with(3.0, 300.0, &[("file.fstat", 290.0, None)]);
        let relation = Relation::new(&plain, &slow).expect("they have what is needed");
        let found = relation
            .remainder(primitive("file.fstat"), 0.0)
            .expect("both have it");
        assert!(
            (found.value - 3.0).abs() < 1e-6 && found.deviation >= PRIOR,
            "{found:?}"
        );
        assert_eq!(relation.remainder(primitive("epoll"), 0.0), None);
    }

    #[test]
    fn what_noise_hides_is_taken_from_what_is_known_of_other_primitives() {
        let known = [
            "file.stat/hot",
            "file.open/hot",
            "file.create/0K",
            "thread.create",
            "process.fork/small",
        ];
        let of = |scale: f64, fstat: f64| {
            let units: Vec<(&str, f64, Option<u64>)> = known
                .iter()
                .map(|name| (*name, 100_000.0 * scale, None))
                .chain([("file.fstat", fstat, None)])
                .collect();
            with(1.0, 100.0, &units)
        };
        let (plain, sandbox) = (of(1.0, 101.0), of(5.0, 99.0));
        let relation = Relation::new(&plain, &sandbox).expect("they have what is needed");
        let found = relation
            .remainder(primitive("file.fstat"), 0.0)
            .expect("both have it");
        assert!(
            (found.value - 5.0).abs() < 0.1 && found.deviation >= PRIOR,
            "{found:?}"
        );
        assert!((relation.user.value - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_differs_by_more_than_its_noise_weighs_alike() {
        let (mean, spread) = random_effects(&[(1.0, 1e-6), (3.0, 1e-2)]);
        assert!(
            (mean - 2.0).abs() < 0.01 && (spread - 1.73).abs() < 0.05,
            "{mean} {spread}"
        );
        let (mean, spread) = random_effects(&[(1.0, 0.01), (1.1, 0.04), (0.95, 0.02)]);
        assert!((mean - 1.0).abs() < 0.01 && spread < 0.1, "{mean} {spread}");
    }

    #[test]
    fn costs_between_sizes_are_interpolated() {
        let units = [
            ("file.reread/4K", 1000.0, Some(4096)),
            ("file.reread/64K", 16_000.0, Some(65536)),
            ("file.reread/1M", 256_000.0, Some(1 << 20)),
        ];
        let machine = with(1.0, 100.0, &units);
        let at = |bytes: f64| {
            cost(&machine, primitive("file.read"), bytes)
                .expect("it has it")
                .ns
        };
        assert_eq!(at(10.0), 1000.0);
        assert_eq!(at(65536.0), 16_000.0);
        assert!((at(34_816.0) - 8500.0).abs() < 1.0);
        assert!((at(2_097_152.0) - 512_000.0).abs() < 1000.0);
    }

    #[test]
    fn without_an_entry_or_user_mode_nothing_is_said() {
        let whole = with(1.0, 100.0, &[]);
        let error = Relation::new(&machine(&[]), &whole)
            .expect_err("no entry")
            .to_string();
        assert!(error.contains("call.null"), "{error}");
        let entry = machine(&[("call.null", 1.0, None)]);
        let error = Relation::new(&entry, &whole)
            .expect_err("no user mode")
            .to_string();
        assert!(error.contains("user mode"), "{error}");
    }
}
