// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels to test, and how to find the newest package of each in a suite.

use anyhow::bail;
use anyhow::Result;

/// A kernel to boot.
#[derive(Debug)]
pub struct Kernel {
    /// Its name on the command line and in the matrix.
    pub name: &'static str,
    /// The first numbers of its version; empty for the newest kernel.
    series: &'static [u32],
    /// Debian's suites that have it.
    pub suites: &'static [&'static str],
    /// Changes to QEMU's most capable processor.
    ///
    /// With `cmpxchg16b`, QEMU 7.2 makes 6.12 panic at random. Kernels of 7.x allocate memory from
    /// within probes with it, and without it no task can be enrolled.
    pub processor: &'static str,
    /// Whether the guest's clock can count instructions (`boot.rs`). With such a clock, 6.1 hangs while it
    /// starts its second processor in QEMU 7.2.
    pub counts_instructions: bool,
}

/// Every kernel of the matrix. They are Debian's cloud kernels, which have few drivers.
pub const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "6.1",
        series: &[6, 1],
        suites: &["bookworm"],
        processor: "-cx16",
        counts_instructions: false,
    },
    Kernel {
        name: "6.12",
        series: &[6, 12],
        suites: &["bookworm-backports"],
        processor: "-cx16",
        counts_instructions: true,
    },
    Kernel {
        name: "newest",
        series: &[],
        suites: &["trixie-backports", "forky", "sid"],
        processor: "+cx16",
        counts_instructions: true,
    },
];

/// The kernels with these names; all if none is named.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Kernel>> {
    if names.is_empty() {
        return Ok(KERNELS.iter().collect());
    }
    let find = |name: &String| match KERNELS.iter().find(|kernel| kernel.name == name) {
        Some(kernel) => Ok(kernel),
        None => bail!(
            "no kernel `{name}`; there are {}",
            KERNELS.map(|kernel| kernel.name).join(", ")
        ),
    };
    names.iter().map(find).collect()
}

impl Kernel {
    /// The release (`uname -r`) of the newest image among package names.
    pub fn newest<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        names
            .filter_map(release_of)
            .filter(|release| numbers(release).starts_with(self.series))
            .max_by_key(|release| numbers(release))
    }
}

/// The release of an image package. `None` for other packages, and for names without a version,
/// which only refer to the newest.
fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    let is_version = release.starts_with(|first: char| first.is_ascii_digit());
    (is_version && release.ends_with("-cloud-amd64")).then_some(release)
}

/// All numbers in a release, in order.
fn numbers(release: &str) -> Vec<u32> {
    let release = release.trim_end_matches("-cloud-amd64");
    let words = release.split(|letter: char| !letter.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 8] = [
        "linux-image-cloud-amd64",
        "linux-image-6.1.0-9-cloud-amd64",
        "linux-image-6.1.0-50-cloud-amd64",
        "linux-image-6.1.0-51-cloud-amd64-unsigned",
        "linux-image-6.12.95+deb12-cloud-amd64",
        "linux-image-6.12.9+deb12-cloud-amd64",
        "linux-image-7.3.4+deb13-cloud-amd64",
        "linux-image-7.3.4+deb13-amd64",
    ];

    fn newest(name: &str) -> Option<&'static str> {
        let kernels = chosen(&[name.to_string()]).expect("a kernel of the matrix");
        kernels[0].newest(NAMES.into_iter())
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(newest("6.1"), Some("6.1.0-50-cloud-amd64"));
        assert_eq!(newest("6.12"), Some("6.12.95+deb12-cloud-amd64"));
        assert_eq!(newest("newest"), Some("7.3.4+deb13-cloud-amd64"));
    }

    #[test]
    fn a_series_is_not_its_longer_namesake() {
        let kernel = chosen(&["6.1".to_string()]).expect("a kernel of the matrix")[0];
        let names = ["linux-image-6.12.95+deb12-cloud-amd64"];
        assert_eq!(kernel.newest(names.into_iter()), None);
    }

    #[test]
    fn an_unknown_kernel_is_refused_with_the_known_ones() {
        let error = chosen(&["5.10".to_string()]).expect_err("not in the matrix");
        assert!(error.to_string().contains("6.1, 6.12, newest"), "{error}");
        assert_eq!(chosen(&[]).expect("all").len(), KERNELS.len());
    }
}
