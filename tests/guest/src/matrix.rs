// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix: kernels by features, with the names of `debox doctor`, and kernels by test programs.

use crate::left_out::Set;
use crate::left_out::LEFT_OUT;
use crate::left_out::ON_TOP;
use crate::left_out::WITH_PROBES;
use crate::report::GuestReport;
use crate::report::Outcome;

const CELL_WIDTH: usize = 22;
const NAME_WIDTH: usize = 36;

/// Prints all of it.
pub fn print(reports: &[GuestReport], set: Set) {
    print!("{}", text(reports, set));
}

fn text(reports: &[GuestReport], set: Set) -> String {
    let mut text = String::from("\n");
    let releases = reports.iter().map(|report| match report.release.as_str() {
        "" => report.name.to_string(),
        release => release.trim_end_matches("-cloud-amd64").to_string(),
    });
    row(&mut text, "", releases);
    for need in in_order(reports.iter().map(needs)) {
        row(
            &mut text,
            &need,
            reports.iter().map(|report| standing(report, &need)),
        );
    }
    text.push('\n');
    row(
        &mut text,
        "tests passed",
        reports.iter().map(|_| String::new()),
    );
    for suite in in_order(reports.iter().map(suites)) {
        let cells = reports.iter().map(|report| passed(report, &suite));
        row(&mut text, &suite, cells);
    }
    row(&mut text, "all", reports.iter().map(all_tests));

    text.push_str("\nWhat was found there\n");
    for (need, found) in found(reports) {
        text.push_str(&format!("  {need}: {found}\n"));
    }
    text.push_str("\nLeft out\n");
    let packages = WITH_PROBES.join(", ");
    text.push_str(&format!(
        "  the tests of packages that load no probes: all but {packages}\n"
    ));
    for left_out in LEFT_OUT {
        let name = [left_out.kernel, left_out.suite, left_out.test].join(" ");
        let words: Vec<&str> = name.split_whitespace().collect();
        text.push_str(&format!("  {}: {}\n", words.join(" "), left_out.reason));
    }
    for (suite, reason) in ON_TOP.iter().filter(|_| set == Set::Truth) {
        text.push_str(&format!("  {suite}: {reason}, with --all\n"));
    }
    for report in reports {
        for test in &report.tests {
            let what = match test.outcome {
                Outcome::Passed => continue,
                Outcome::Skipped => "skipped",
                Outcome::Failed => "FAILED",
            };
            text.push_str(&format!(
                "{} {} {}: {what}\n",
                report.name, test.suite, test.name
            ));
        }
        for test in &report.corrected {
            text.push_str(&format!(
                "{} {test}: failed beside other guests, passed when it was tried again\n",
                report.name
            ));
        }
        if let Some(failure) = &report.failure {
            text.push_str(&format!("{}: FAILED: {failure}\n", report.name));
        }
    }
    let passed = |report: &GuestReport| report.count(Outcome::Passed);
    let sum = |count: &dyn Fn(&GuestReport) -> usize| reports.iter().map(count).sum::<usize>();
    text.push_str(&format!(
        "\n{} passed, {} failed, {} skipped\n",
        sum(&passed),
        sum(&|report| report.count(Outcome::Failed) + usize::from(report.failure.is_some())),
        sum(&|report| report.count(Outcome::Skipped)),
    ));
    text
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let mut line = format!("{name:NAME_WIDTH$}");
    for cell in cells {
        line.push_str(&format!("{cell:CELL_WIDTH$}"));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// All names without duplicates, in order of first occurrence.
fn in_order(lists: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in lists.flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn needs(report: &GuestReport) -> Vec<String> {
    let findings = report.doctor.iter().flat_map(|doctor| &doctor.findings);
    findings.map(|finding| finding.need.clone()).collect()
}

fn suites(report: &GuestReport) -> Vec<String> {
    report.tests.iter().map(|test| test.suite.clone()).collect()
}

/// The standing of a need, as `debox doctor` reports it.
fn standing(report: &GuestReport, need: &str) -> String {
    let mut findings = report.doctor.iter().flat_map(|doctor| &doctor.findings);
    let finding = findings.find(|finding| finding.need == need);
    let word = finding.map_or("-", |finding| match finding.standing.as_str() {
        "met" => "yes",
        "limits" => "limited",
        "prevents" => "NO",
        "unchecked" => "unknown",
        other => other,
    });
    word.to_string()
}

/// How each need is met, or what is missing; one line if all kernels agree.
fn found(reports: &[GuestReport]) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for need in in_order(reports.iter().map(needs)) {
        let mut said: Vec<(String, Vec<&str>)> = Vec::new();
        for report in reports {
            let mut findings = report.doctor.iter().flat_map(|doctor| &doctor.findings);
            let Some(finding) = findings.find(|finding| finding.need == need) else {
                continue;
            };
            match said.iter_mut().find(|(found, _)| *found == finding.found) {
                Some((_, names)) => names.push(report.name),
                None => said.push((finding.found.clone(), vec![report.name])),
            }
        }
        let all_agree = said.len() == 1;
        for (found, names) in said {
            let which = if all_agree {
                need.clone()
            } else {
                format!("{need} ({})", names.join(", "))
            };
            lines.push((which, found));
        }
    }
    lines
}

fn passed(report: &GuestReport, suite: &str) -> String {
    tally(report, |test_suite| test_suite == suite)
}

fn all_tests(report: &GuestReport) -> String {
    if report.failure.is_some() {
        return format!("{}, NOT DONE", tally(report, |_| true));
    }
    tally(report, |_| true)
}

fn tally(report: &GuestReport, wanted: impl Fn(&str) -> bool) -> String {
    let count = |outcomes: &[Outcome]| {
        let tests = report.tests.iter();
        tests
            .filter(|test| wanted(&test.suite) && outcomes.contains(&test.outcome))
            .count()
    };
    let good = count(&[Outcome::Passed]);
    let bad = count(&[Outcome::Failed]);
    let skipped = count(&[Outcome::Skipped]);
    if good + bad + skipped == 0 {
        return "-".to_string();
    }
    let mut text = format!("{good} of {}", good + bad);
    if skipped > 0 {
        text.push_str(&format!(", {skipped} skipped"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Doctor;
    use crate::report::Finding;
    use crate::report::TestResult;

    fn guest(name: &'static str, standing: &str, found: &str, outcome: Outcome) -> GuestReport {
        let finding = Finding {
            need: "kprobe.session".to_string(),
            standing: standing.to_string(),
            found: found.to_string(),
        };
        let test = TestResult {
            suite: "waits".to_string(),
            name: "a_wait".to_string(),
            outcome,
            seconds: 1.0,
            output: String::new(),
        };
        GuestReport {
            release: format!("{name}-cloud-amd64"),
            doctor: Some(Doctor {
                ok: true,
                findings: vec![finding],
            }),
            tests: vec![test],
            done: true,
            ..GuestReport::new(name)
        }
    }

    #[test]
    fn kernels_stand_beside_each_other() {
        let guests = [
            guest("6.1", "unused", "none here", Outcome::Failed),
            guest("6.12", "met", "attach", Outcome::Passed),
        ];
        let shown = text(&guests, Set::All);
        let line = |start: &str| shown.lines().find(|line| line.starts_with(start));
        let words = |start: &str| line(start).map(|line| line.split_whitespace().collect());
        assert_eq!(
            words("kprobe.session"),
            Some(vec!["kprobe.session", "unused", "yes"])
        );
        assert_eq!(
            words("waits"),
            Some(vec!["waits", "0", "of", "1", "1", "of", "1"])
        );
        assert!(line("6.1 waits a_wait: FAILED").is_some(), "{shown}");
        assert!(line("6.12 waits a_wait").is_none(), "{shown}");
        assert!(shown.contains("kprobe.session (6.1): none here"), "{shown}");
        assert!(shown.ends_with("\n1 passed, 1 failed, 0 skipped\n"));
    }

    #[test]
    fn a_guest_that_never_booted_is_a_failure() {
        let mut report = GuestReport::new("6.1");
        report.failure = Some("no kernel".to_string());
        let shown = text(&[report], Set::Truth);
        assert!(shown.contains("6.1: FAILED: no kernel"), "{shown}");
        assert!(shown.contains("\n0 passed, 1 failed"), "{shown}");
        assert!(
            shown.contains("doctor: ") && shown.contains("with --all"),
            "{shown}"
        );
    }
}
