//! The page in a real browser without a network: every plot is drawn, nothing complains.

use serde_json::json;

use crate::files::{meta, parquet, run_all, Place, Row};

/// Not captured by the test harness, so that `scripts/test` can name it.
fn skip(why: &str) {
    debox_skipped::skipped(&format!("the_page: {why}"));
}

fn load(n: i64, load: f64) -> Vec<Row> {
    let mut random = fastrand::Rng::with_seed((load * 100.0) as u64);
    (0..n)
        .map(|at| {
            let size = [300, 2_000, 5_000, 30_000][random.usize(..4)];
            let noise = (-(1.0 - random.f64()).ln() * 2e6 * load / (1.05 - load)) as i64;
            Row {
                connection: random.u32(..8),
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
    // Distributions, percentiles over load, inversion over load.
    assert!(head.contains("data-plots=\"3/3\""), "{head}");
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(!opened.dom.contains("<img src"), "a name became an element");
}
