//! Computes the figures from the requests.

use anyhow::{ensure, Result};
use kit_stats::{CONFIDENCE, LEFT_OUT};

use super::over_time::over_time;
use super::steps::steps;
use super::{Bounds, Corrected, Intervals, Inversion, Number, RunReport};
use crate::deciles::{deciles, series};
use crate::fairness::{Connections, Jain};
use crate::ideal::Load;
use crate::in_flight::InFlight;
use crate::intervals::{self, Draws, Interval};
use crate::inversion::Order;
use crate::mode::Mode;
use crate::number::latency as in_words;
use crate::read::TimeUnit;
use crate::request::{Basis, Request, Run};
use crate::rows::Lateness;
use crate::stats::{self, Latency, Percentiles};

/// Fixed, so that the same file gives the same figures.
const SEED: u64 = 20_050_601;
/// With fewer requests, leaving out a block says nothing.
const JACKKNIFE_MIN: usize = 20 * LEFT_OUT;

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Load relative to the server's capacity, if the file does not contain it.
    pub load: Option<f64>,
    /// Fixed cost of a request on the ideal server, in bytes, in addition to its size.
    pub request_bytes: u64,
}

/// The figures, and what is needed to compare them with others.
pub struct Measured {
    pub report: RunReport,
    pub draws: Option<Draws>,
    /// Standard error of the service inversion.
    pub inversion_error: Option<f64>,
}

pub fn measure(run: &Run, settings: &Settings) -> Result<Measured> {
    let scored: Vec<Request> = run
        .requests
        .iter()
        .filter(|request| !request.is_warm_up)
        .copied()
        .collect();
    ensure!(
        !scored.is_empty(),
        "all requests of {} are in its warm-up",
        run.path.display()
    );
    let unit = run.unit.ticks();
    let load = settings.load.or(run.load);
    let latencies: Vec<u64> = scored.iter().map(|request| request.latency).collect();
    let mut by_latency: Vec<u32> = (0..scored.len() as u32).collect();
    by_latency.sort_by_key(|index| latencies[*index as usize]);
    let sorted: Vec<u64> = by_latency.iter().map(|i| latencies[*i as usize]).collect();
    let in_time = in_time(&scored, run.has_times);
    let draws = intervals::draw(&latencies, &by_latency, &in_time, SEED);
    let bounds = |(low, high): Interval| -> Bounds {
        let in_unit = |ticks: f64| Number(ticks / unit);
        (low.map(in_unit), high.map(in_unit))
    };
    let mut caveats = run.caveats.clone();
    let percentiles = stats::percentiles(&sorted);
    add_failure_caveats(run, &sorted, &mut caveats);
    add_step_caveats(run, &mut caveats);

    // Requests with known sizes.
    let sized: Vec<(u64, u64)> = by_latency
        .iter()
        .map(|index| scored[*index as usize])
        .filter(Request::has_size)
        .map(|request| (request.size, request.latency))
        .collect();
    let mut sizes: Vec<u64> = sized.iter().map(|response| response.0).collect();
    let series = series(&mut sizes);
    let without_size = (scored.len() - sized.len()) as u64;
    if without_size > 0 && !sized.is_empty() {
        caveats.push(format!(
            "{without_size} requests have no size: service inversion and deciles are without them."
        ));
    }
    let inversion = (!sized.is_empty()).then(|| {
        invert(
            run,
            &scored,
            &in_time,
            load,
            settings.request_bytes,
            &mut caveats,
        )
    });
    let deciles = if sized.is_empty() {
        Vec::new()
    } else {
        deciles(&sized, &series, unit)
    };
    let span = run.has_times.then(|| span(&scored));
    let seconds = span
        .map(|(begin, end)| end.saturating_sub(begin) as f64 / 1e9)
        .filter(|s| *s > 0.0);
    let bytes: f64 = sized.iter().map(|response| response.0 as f64).sum();
    let meta = run.meta.as_ref();
    let connections = run
        .has_connections
        .then(|| Connections::of(&scored, run.connections_used));
    add_generator_caveats(run, percentiles[1], &mut caveats);
    let report = RunReport {
        name: run.name(),
        format: run.format,
        unit: run.unit,
        unit_by_magnitude: run.unit_by_magnitude.map(TimeUnit::name),
        latency_from: run.basis,
        mode: run.mode,
        load,
        offered_rps: run.offered_rps,
        connections: meta.and_then(|meta| meta.connections),
        connections_used: connections.map(|connections| connections.used),
        connections_unserved: connections.map(|connections| connections.unserved),
        data_set_bytes: run.data_set_bytes,
        requests: scored.len() as u64,
        failed: run.failed.clone(),
        warm_up: (run.requests.len() - scored.len()) as u64,
        without_size,
        seconds,
        requests_per_second: seconds.map(|seconds| scored.len() as f64 / seconds),
        bytes_per_second: seconds
            .filter(|_| without_size == 0)
            .map(|seconds| bytes / seconds),
        latency: Latency::of(&sorted, unit),
        percentiles: Percentiles::from(percentiles.map(|ticks| Number(ticks as f64 / unit))),
        steps: steps(run, &scored),
        intervals: Intervals {
            confidence: CONFIDENCE,
            mean: bounds(intervals::of_mean(draws.as_ref())),
            percentiles: Percentiles::from(
                intervals::of_percentiles(&sorted, draws.as_ref()).map(bounds),
            ),
        },
        service_inversion: inversion.as_ref().map(|(value, _, _)| *value),
        inversion: inversion
            .as_ref()
            .map(|(_, inversion, _)| inversion.clone()),
        jain: Jain::of(&scored, connections),
        series,
        deciles,
        cdf: stats::cdf(&sorted, unit),
        over_time: over_time(run, &scored),
        lateness: meta.and_then(|meta| meta.lateness),
        generator_cpu: meta.and_then(|meta| meta.generator_cpu),
        server: None,
        caveats,
    };
    Ok(Measured {
        report,
        draws,
        inversion_error: inversion.and_then(|(_, _, error)| error),
    })
}

/// Indices in the order in which requests began; if that is unknown, in the order of the file.
fn in_time(requests: &[Request], has_times: bool) -> Vec<u32> {
    let mut order: Vec<u32> = (0..requests.len() as u32).collect();
    if has_times {
        order.sort_by_key(|index| requests[*index as usize].begin_ns);
    }
    order
}

fn span(requests: &[Request]) -> (i64, i64) {
    let begin = requests.iter().map(|request| request.begin_ns).min();
    let end = requests.iter().map(Request::end_ns).max();
    (begin.unwrap_or(0), end.unwrap_or(0))
}

fn invert(
    run: &Run,
    scored: &[Request],
    in_time: &[u32],
    load: Option<f64>,
    request_bytes: u64,
    caveats: &mut Vec<String>,
) -> (f64, Inversion, Option<f64>) {
    let block_of_scored = kit_stats::blocks(in_time, LEFT_OUT);
    let with_size = || {
        scored
            .iter()
            .enumerate()
            .filter(|(_, request)| request.has_size())
    };
    let responses: Vec<(u64, u64)> = with_size().map(|(_, r)| (r.size, r.latency)).collect();
    let blocks: Vec<u16> = with_size()
        .map(|(index, _)| block_of_scored[index])
        .collect();
    let order = Order::new(&responses);
    let value = order.value();
    let without = |order: &Order| -> Vec<f64> {
        if responses.len() < JACKKNIFE_MIN {
            return Vec::new();
        }
        (0..LEFT_OUT as u16)
            .map(|block| order.value_of(|index| blocks[index as usize] != block))
            .collect()
    };
    let left_out = without(&order);
    let jackknife = kit_stats::jackknife(value, &left_out);
    let with_ties_against = order.value_with_ties_against(&responses);
    if with_ties_against - value > 0.02 {
        caveats.push(format!(
            "{} of {} requests have their latency in common with one of another size, because the clock \
             of the file is coarse. They count as in the right order; if all were in the wrong one, \
             service inversion would be {with_ties_against:.2}.",
            order.tied,
            responses.len()
        ));
    }
    let ideal = ideal(run, load, request_bytes);
    let (corrected, not_corrected) = match ideal {
        Err(why) => (None, Some(why)),
        Ok((latencies, utilisation, arrivals)) => {
            let responses: Vec<(u64, u64)> = run
                .requests
                .iter()
                .filter(|request| request.has_size())
                .zip(&latencies)
                .filter(|(request, _)| !request.is_warm_up)
                // The bits of non-negative floats sort like the numbers.
                .map(|(request, latency)| (request.size, latency.max(0.0).to_bits()))
                .collect();
            let ideal = Order::new(&responses);
            let difference: Vec<f64> = left_out
                .iter()
                .zip(without(&ideal))
                .map(|(ours, ideal)| ours - ideal)
                .collect();
            let ideal = ideal.value();
            let corrected = Corrected {
                value: value - ideal,
                interval: kit_stats::jackknife(value - ideal, &difference).map(|found| found.0),
                ideal,
                utilisation,
                arrivals,
            };
            (Some(corrected), None)
        }
    };
    let inversion = Inversion {
        interval: jackknife.map(|((low, high), _)| (low.max(0.0), high.min(1.0))),
        tied: order.tied,
        with_ties_against,
        random: order.random(order.rounds(), SEED),
        reversed: order.reversed(),
        corrected,
        not_corrected,
    };
    (value, inversion, jackknife.map(|(_, error)| error))
}

/// Latencies of the ideal server for all requests with a size, including the warm-up; its utilisation;
/// and how requests arrived.
fn ideal(
    run: &Run,
    load: Option<f64>,
    request_bytes: u64,
) -> Result<(Vec<f64>, f64, Mode), String> {
    if run.basis == Basis::FirstByte {
        return Err("latencies are up to the first byte".to_string());
    }
    if !run.has_times {
        return Err("when requests began is not known".to_string());
    }
    let requests: Vec<&Request> = run.requests.iter().filter(|r| r.has_size()).collect();
    let demand = |request: &Request| request.size as f64 + request_bytes as f64;
    let first = requests
        .iter()
        .map(|request| request.begin_ns)
        .min()
        .unwrap_or(0);
    let since = |ns: i64| ns.saturating_sub(first) as f64;
    let mut ideal = Load::default();
    let is_closed = run.mode == Some(Mode::Closed) || (run.mode.is_none() && load.is_none());
    if is_closed {
        if !run.has_connections {
            return Err("which connection requests are from is not known".to_string());
        }
        // Numbers of the requests here and in the load, by connection.
        let mut order: Vec<u32> = (0..requests.len() as u32).collect();
        order.sort_by_key(|index| {
            let request = requests[*index as usize];
            (request.connection, request.begin_ns)
        });
        let mut last: Option<(&Request, u32)> = None;
        for index in &order {
            let request = requests[*index as usize];
            let before = last.filter(|(before, _)| before.connection == request.connection);
            let number = match before {
                Some((before, number)) => {
                    let pause = request.begin_ns.saturating_sub(before.end_ns());
                    ideal.add(demand(request), pause as f64, Some(number))
                }
                None => ideal.add(demand(request), since(request.begin_ns), None),
            };
            last = Some((request, number));
        }
        let end = requests
            .iter()
            .map(|request| request.end_ns())
            .max()
            .unwrap_or(0);
        if since(end) <= 0.0 || ideal.total() <= 0.0 {
            return Err("the run has no length, or no bytes".to_string());
        }
        let served = ideal.share(ideal.rate_for_end(since(end)));
        let mut latencies = vec![0.0; requests.len()];
        for (number, index) in order.iter().enumerate() {
            latencies[*index as usize] = served.latencies[number];
        }
        Ok((latencies, served.utilisation, Mode::Closed))
    } else {
        let Some(load) = load.filter(|load| *load > 0.0) else {
            return Err(
                "which part of the server's capacity the load was is not known: --load says it"
                    .to_string(),
            );
        };
        let last = requests
            .iter()
            .map(|request| request.begin_ns)
            .max()
            .unwrap_or(0);
        for request in &requests {
            ideal.add(demand(request), since(request.begin_ns), None);
        }
        if since(last) <= 0.0 || ideal.total() <= 0.0 {
            return Err("the run has no length, or no bytes".to_string());
        }
        let served = ideal.share(ideal.total() / (since(last) * load));
        Ok((served.latencies, served.utilisation, Mode::Open))
    }
}

fn add_step_caveats(run: &Run, caveats: &mut Vec<String>) {
    let steps = run.meta.as_ref().and_then(|meta| meta.steps.as_ref());
    if let Some(steps) = steps {
        caveats.push(format!(
            "The rate has {} steps: all figures but those by step are of all of them together.",
            steps.len()
        ));
    }
}

fn add_failure_caveats(run: &Run, sorted: &[u64], caveats: &mut Vec<String>) {
    let failed: u64 = run.failed.values().sum();
    if failed == 0 {
        return;
    }
    let all = sorted.len() + failed as usize;
    let most = run.failed.iter().max_by_key(|(_, count)| **count);
    let most = most.map_or(String::new(), |(reason, count)| {
        format!(" ({count} times: {reason})")
    });
    let with_them = match sorted.get(kit_stats::rank(all, 99.0)) {
        Some(ticks) => {
            let value = Number(*ticks as f64 / run.unit.ticks());
            format!("would be {}", in_words(value, run.unit))
        }
        None => "would not be known".to_string(),
    };
    caveats.push(format!(
        "{failed} of {all} requests failed{most}; they are in no other figure. Counted as slower than all \
         others, the 99th percentile {with_them}."
    ));
}

fn add_generator_caveats(run: &Run, median: u64, caveats: &mut Vec<String>) {
    let Some(meta) = &run.meta else { return };
    if let Some(why) = &meta.refused {
        caveats.insert(0, format!("These figures are not the server's: {why}"));
    }
    caveats.extend(meta.in_flight.iter().flat_map(InFlight::warnings));
    let late = |late: Option<Lateness>, what: &str| {
        let ns = late.map_or(0, |late| u64::try_from(late.p99_ns).unwrap_or(0));
        // A tenth of the measured value.
        (ns.saturating_mul(10) > median).then(|| {
            format!(
                "The generator was late itself: 1 % of {what} {} late or more, and the median latency is {}.",
                in_words(Number(ns as f64), run.unit),
                in_words(Number(median as f64), run.unit)
            )
        })
    };
    caveats.extend(late(meta.lateness, "requests were sent"));
    caveats.extend(late(meta.reply_lateness, "answers were taken"));
    if let Some(cpu) = meta.generator_cpu.filter(|cpu| *cpu > 0.9) {
        caveats.push(format!(
            "The generator used {:.0} % of its CPU: it may be what is measured.",
            100.0 * cpu
        ));
    }
}
