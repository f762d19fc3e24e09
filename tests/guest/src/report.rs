// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's messages: one JSON object per line, over its second serial port.

use serde::Deserialize;
use serde::Serialize;

/// One line of the port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The findings of `debox doctor`, in its own format.
    Doctor(Doctor),
    Test(TestResult),
    /// It takes commands now.
    Ready,
    /// A command has ended.
    Ran(Ran),
    /// The guest could not continue.
    Failed(String),
    /// All tests have run.
    Done,
}

/// The part of `debox doctor --format json` that is shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Doctor {
    pub ok: bool,
    pub findings: Vec<Finding>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub need: String,
    pub standing: String,
    pub found: String,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    /// The test itself reported that it cannot run here.
    Skipped,
    Failed,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The test program, such as `waits`.
    pub suite: String,
    pub name: String,
    pub outcome: Outcome,
    pub seconds: f64,
    /// Its output if it failed, or the reason if it was skipped.
    pub output: String,
}

/// What a client wants to run in the guest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub words: Vec<String>,
}

/// What became of a command. Output that is no text loses what is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// As a shell has it: 128 and the signal's number if one ended it.
    pub status: u8,
    pub out: String,
    pub err: String,
}

/// Everything known about a guest.
#[derive(Debug, Default)]
pub struct GuestReport {
    /// The kernel's name in the matrix.
    pub name: &'static str,
    pub release: String,
    pub doctor: Option<Doctor>,
    pub tests: Vec<TestResult>,
    /// Tests that failed with the host's clock, and passed when they were tried again with one that counts instructions.
    pub corrected: Vec<String>,
    /// Why the guest did not finish.
    pub failure: Option<String>,
    pub done: bool,
}

impl GuestReport {
    pub fn new(name: &'static str) -> GuestReport {
        GuestReport {
            name,
            ..GuestReport::default()
        }
    }

    /// Adds a line. Returns true if it was the last one.
    pub fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Doctor(doctor) => self.doctor = Some(doctor),
            Message::Test(result) => self.tests.push(result),
            Message::Ready | Message::Ran(_) => {}
            Message::Failed(reason) => self.failure = Some(reason),
            Message::Done => self.done = true,
        }
        self.done || self.failure.is_some()
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        let same = |test: &&TestResult| test.outcome == outcome;
        self.tests.iter().filter(same).count()
    }

    /// The tests that failed, as program and name.
    pub fn failed(&self) -> Vec<(String, String)> {
        let failed = |test: &&TestResult| test.outcome == Outcome::Failed;
        let tests = self.tests.iter().filter(failed);
        tests
            .map(|test| (test.suite.clone(), test.name.clone()))
            .collect()
    }

    /// Takes the results of tests that were tried again. A test that does not pass then stays failed, with its new output.
    pub fn correct(&mut self, again: GuestReport) {
        for test in again.tests {
            let same = |old: &&mut TestResult| (&old.suite, &old.name) == (&test.suite, &test.name);
            let Some(old) = self.tests.iter_mut().find(same) else {
                continue;
            };
            match test.outcome {
                Outcome::Passed => self.corrected.push(format!("{} {}", test.suite, test.name)),
                Outcome::Skipped => continue,
                Outcome::Failed => {}
            }
            *old = test;
        }
    }

    /// Whether the guest finished, and every test passed.
    pub fn passed(&self) -> bool {
        self.done
            && self.failure.is_none()
            && self.count(Outcome::Failed) == 0
            && self.count(Outcome::Passed) > 0
    }

    /// Whether the guest finished, debox works there, and every test passed. A guest without tests
    /// proves nothing.
    pub fn is_good(&self) -> bool {
        self.passed() && self.doctor.as_ref().is_some_and(|doctor| doctor.ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(outcome: Outcome) -> Message {
        Message::Test(TestResult {
            suite: "waits".to_string(),
            name: "a_wait".to_string(),
            outcome,
            seconds: 0.5,
            output: "two\nlines".to_string(),
        })
    }

    fn good() -> GuestReport {
        let mut report = GuestReport::new("6.12");
        let doctor = Doctor {
            ok: true,
            findings: Vec::new(),
        };
        assert!(!report.take(Message::Doctor(doctor)));
        assert!(!report.take(test(Outcome::Passed)));
        assert!(report.take(Message::Done));
        report
    }

    #[test]
    fn only_a_test_that_passes_when_tried_again_is_corrected() {
        let result = |name: &str, outcome| TestResult {
            suite: "waits".to_string(),
            name: name.to_string(),
            outcome,
            seconds: 1.0,
            output: String::new(),
        };
        let reported = |outcomes: [Outcome; 3]| GuestReport {
            tests: ["one", "two", "three"]
                .into_iter()
                .zip(outcomes)
                .map(|(name, outcome)| result(name, outcome))
                .collect(),
            ..GuestReport::new("6.12")
        };
        let mut report = reported([Outcome::Failed; 3]);
        assert_eq!(report.failed().len(), 3);
        report.correct(reported([
            Outcome::Passed,
            Outcome::Skipped,
            Outcome::Failed,
        ]));
        assert_eq!(report.corrected, ["waits one"]);
        let left = ["two", "three"].map(|name| ("waits".to_string(), name.to_string()));
        assert_eq!(report.failed(), left);
    }

    #[test]
    fn a_message_is_one_line_and_comes_back_as_it_was() {
        let text = serde_json::to_string(&test(Outcome::Failed)).expect("JSON");
        assert_eq!(text.lines().count(), 1);
        let back: Message = serde_json::from_str(&text).expect("a message");
        assert_eq!(back, test(Outcome::Failed));
    }

    #[test]
    fn doctors_own_json_is_understood() {
        let text = r#"{"schema":"debox.doctor/1","kernel":"6.12","ok":true,"findings":
            [{"need":"kernel tap","standing":"met","found":"works","cost":"","remedy":""}]}"#;
        let doctor: Doctor = serde_json::from_str(text).expect("a diagnosis");
        assert_eq!(doctor.findings[0].need, "kernel tap");
    }

    #[test]
    fn only_a_guest_that_came_to_its_end_with_all_passed_is_good() {
        assert!(good().is_good());
        let spoilt: [fn(&mut GuestReport); 5] = [
            |report| report.done = false,
            |report| report.failure = Some("panic".to_string()),
            |report| report.doctor = None,
            |report| report.tests.clear(),
            |report| report.tests[0].outcome = Outcome::Failed,
        ];
        for spoil in spoilt {
            let mut report = good();
            spoil(&mut report);
            assert!(!report.is_good(), "{report:?}");
        }
    }
}
