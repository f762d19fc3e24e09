//! The page in a real browser without a network: every plot is drawn, and no error is reported.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::files::{json as json_of, meta, parquet, run_all, Place, Row};

/// Not captured by the test harness, so `scripts/test` can list the skipped test.
fn skip(why: &str) {
    debox_skipped::skipped(&format!("the_page: {why}"));
}

fn load(n: i64, load: f64) -> Vec<Row> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64((load * 100.0) as u64);
    (0..n)
        .map(|at| {
            let size = [300, 2_000, 5_000, 30_000][random.random_range(0..4)];
            let noise = (-(1.0 - random.random::<f64>()).ln() * 2e6 * load / (1.05 - load)) as i64;
            Row {
                connection: random.random_range(0..8),
                ..Row::new(at * 500_000, size * 20 + noise, size)
            }
        })
        .collect()
}

#[test]
fn every_plot_is_drawn_and_nothing_complains() {
    if let Some(why) = latlab_analysis::page::missing() {
        return skip(why);
    }
    let place = Place::new();
    let paths: Vec<_> = [0.2, 0.6, 0.95]
        .into_iter()
        .map(|part| {
            let path = place.path(&format!(
                "<img src=x onerror=document.title=1>{part}.parquet"
            ));
            parquet(&path, &meta(json!({"load": part})), &load(4000, part));
            path
        })
        .collect();
    let paths: Vec<&std::path::Path> = paths.iter().map(|path| path.as_path()).collect();
    let html = place.path("page.html");
    run_all(&paths, &["--html", html.to_str().expect("a name")]).expect("a page");
    let text = std::fs::read_to_string(&html).expect("a page");
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
    for outside in ["<script src", "<link", "@import", "url(http"] {
        assert!(!text.contains(outside), "{outside} in the page");
    }
    let Some(opened) = debox_browser::open(&html, 1000, "#dark") else {
        return skip("no chromium (scripts/setup browser)");
    };
    let head = opened.head();
    assert!(
        head.contains("data-done=\"yes\"") && !head.contains("data-error"),
        "{head}\n{}",
        opened.log
    );
    assert!(head.contains("data-theme=\"dark\""), "{head}");
    // Distributions, tails, latency over time, percentiles over load, inversion over load.
    assert!(head.contains("data-plots=\"5/5\""), "{head}");
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(!opened.dom.contains("<img src"), "a name became an element");
}

#[test]
fn a_run_of_several_rates_is_shown_over_time_with_its_steps() {
    if let Some(why) = latlab_analysis::page::missing() {
        return skip(why);
    }
    let place = Place::new();
    let path = place.path("steps.parquet");
    let second = 1_000_000_000i64;
    let steps: Vec<_> = [500, 1000, 2000]
        .iter()
        .zip(0i64..)
        .map(|(rps, at)| json!({"offered_rps": rps, "begin_ns": at * second, "end_ns": (at + 1) * second}))
        .collect();
    let mut rows = Vec::new();
    for (rps, at) in [500i64, 1000, 2000].into_iter().zip(0i64..) {
        // A higher rate is slower.
        let row = |n| {
            Row::new(
                at * second + n * second / rps,
                rps * 2_000 + n % 7 * 1_000,
                300,
            )
        };
        rows.extend((0..rps).map(row));
    }
    parquet(
        &path,
        &meta(json!({"steps": steps, "warmup_ns": 200_000_000})),
        &rows,
    );
    let html = place.path("page.html");
    run_all(&[&path], &["--html", html.to_str().expect("a name")]).expect("a page");
    let found = json_of(&path, &[]);
    let over_time = found["over_time"].as_array().expect("intervals");
    let edges = [200_000_000, second, 2 * second, 3 * second];
    for pair in edges.windows(2) {
        // No interval covers two rates.
        let within = |one: &&serde_json::Value| {
            let (begin, end) = (&one["begin_ns"], &one["end_ns"]);
            pair[0] <= begin.as_i64().expect("ns") && end.as_i64().expect("ns") <= pair[1]
        };
        let its: Vec<_> = over_time.iter().filter(within).collect();
        assert!(its.len() > 2, "{over_time:#?}");
        let rps = its
            .iter()
            .map(|one| one["requests"].as_i64().expect("a count"))
            .sum::<i64>();
        let median = its[1]["p50"].as_i64().expect("ns");
        assert!(
            (median - rps * 2_000 * second / (pair[1] - pair[0])).abs() < 60_000,
            "{its:#?}"
        );
    }
    assert_eq!(over_time[0]["begin_ns"], edges[0]);
    let Some(opened) = debox_browser::open(&html, 1000, "") else {
        return skip("no chromium (scripts/setup browser)");
    };
    let head = opened.head();
    // Distribution, tail, over time.
    assert!(
        head.contains("data-plots=\"3/3\"") && !head.contains("data-error"),
        "{head}"
    );
    for section in ["tail", "time"] {
        assert!(
            opened.dom.contains(&format!("<section id=\"{section}\"")),
            "{section}"
        );
    }
    assert!(opened.dom.contains("2,000"), "the rate of a step");
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}
