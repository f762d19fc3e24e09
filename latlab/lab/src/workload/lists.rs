//! Workloads from files: lists of URLs, distributions of sizes.

use std::path::Path;

use anyhow::{ensure, Context, Result};
use rand::{Rng, RngExt};

use super::{Kind, Request, NO_CLASS};
use crate::dynamic::Visitor;

/// URLs or paths, one per line. Empty lines and lines that begin with `#` are skipped.
pub fn read_urls(path: &Path) -> Result<Vec<String>> {
    let text = read(path)?;
    let mut paths = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let asked = path_of(line).with_context(|| {
            format!(
                "{}, line {number}: expected a path that begins with /, or a URL",
                path.display()
            )
        })?;
        paths.push(asked);
    }
    ensure!(!paths.is_empty(), "{} has no URL", path.display());
    Ok(paths)
}

/// The path and query of a URL, as they are sent.
pub(super) fn path_of(url: &str) -> Option<String> {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => url,
    };
    let path = path.split('#').next()?;
    let clean = path.bytes().all(|byte| byte.is_ascii_graphic());
    (path.starts_with('/') && clean).then(|| path.to_string())
}

/// `SIZE WEIGHT` per line; the default weight is 1.
pub fn read_sizes(path: &Path) -> Result<Vec<(u64, f64)>> {
    let text = read(path)?;
    let mut sizes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let size = words.next().and_then(|word| match word {
            "0" => Some(0),
            word => crate::units::parse_size(word).ok(),
        });
        let weight: Option<f64> = words.next().map_or(Some(1.0), |word| word.parse().ok());
        match (size, weight) {
            (Some(size), Some(weight)) if weight > 0.0 && weight.is_finite() => {
                sizes.push((size, weight));
            }
            _ => anyhow::bail!(
                "{}, line {number}: expected a size and a weight, as in 4K 0.5",
                path.display()
            ),
        }
    }
    ensure!(!sizes.is_empty(), "{} has no size", path.display());
    Ok(sizes)
}

pub(super) fn read(path: &Path) -> Result<String> {
    let bytes = kit_files::input::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Paths in order.
pub struct ListSource {
    paths: Vec<String>,
    kind: Kind,
    next: usize,
    step: usize,
}

impl ListSource {
    pub fn new(paths: Vec<String>, log: bool, process: u16, processes: u16) -> Result<ListSource> {
        ensure!(!paths.is_empty(), "there is no path to ask for");
        ensure!(
            u32::try_from(paths.len()).is_ok(),
            "there are too many paths"
        );
        Ok(ListSource {
            kind: if log { Kind::Log } else { Kind::List },
            next: usize::from(process) % paths.len(),
            step: usize::from(processes),
            paths,
        })
    }

    pub fn draw(&mut self) -> Request {
        let path = self.next as u32;
        self.next = (self.next + self.step) % self.paths.len();
        Request {
            kind: self.kind,
            class: NO_CLASS,
            path,
            size: None,
            visitor: Visitor::default(),
            checked: false,
        }
    }

    pub fn path(&self, path: u32) -> String {
        self.paths.get(path as usize).cloned().unwrap_or_default()
    }
}

/// Sizes drawn by weight.
pub struct SizeSource {
    sizes: Vec<(u64, f64)>,
    total: f64,
    template: String,
}

impl SizeSource {
    pub fn new(sizes: Vec<(u64, f64)>, template: &str) -> Result<SizeSource> {
        ensure!(!sizes.is_empty(), "there is no size to ask for");
        ensure!(
            template.starts_with('/') && template.contains("{size}"),
            "the path for a size has to begin with / and to have {{size}} in it"
        );
        Ok(SizeSource {
            total: sizes.iter().map(|(_, weight)| weight).sum(),
            sizes,
            template: template.to_string(),
        })
    }

    pub fn draw(&mut self, random: &mut impl Rng) -> Request {
        let mut drawn = random.random::<f64>() * self.total;
        let found = self.sizes.iter().position(|(_, weight)| {
            drawn -= weight;
            drawn < 0.0
        });
        let index = found.unwrap_or(self.sizes.len() - 1);
        Request {
            kind: Kind::Size,
            class: NO_CLASS,
            path: index as u32,
            size: Some(self.sizes[index].0),
            visitor: Visitor::default(),
            checked: false,
        }
    }

    pub fn path(&self, path: u32) -> String {
        let size = self.sizes.get(path as usize).map_or(0, |(size, _)| *size);
        self.template.replace("{size}", &size.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::SeedableRng;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn lists_have_urls_and_paths() {
        let list = file("# mine\nhttp://host:80/a/b#top\n\n/c\nhttps://host\n");
        assert_eq!(read_urls(list.path()).unwrap(), ["/a/b", "/c", "/"]);
        let wrong = read_urls(file("/a\nb\n").path()).unwrap_err();
        assert!(wrong.to_string().contains("line 2"), "{wrong}");
        assert!(
            read_urls(file("/a b\n").path()).is_err(),
            "it would end the request line"
        );
    }

    #[test]
    fn processes_share_a_list() {
        let paths: Vec<String> = ["/a", "/b", "/c", "/d"].map(String::from).to_vec();
        let mut second = ListSource::new(paths, false, 1, 2).unwrap();
        let asked: Vec<u32> = (0..3).map(|_| second.draw().path).collect();
        assert_eq!(asked, [1, 3, 1]);
    }

    #[test]
    fn sizes_come_by_weight() {
        let sizes = read_sizes(file("1K 3 # most\n2K\n").path()).unwrap();
        assert_eq!(sizes, [(1024, 3.0), (2048, 1.0)]);
        let mut source = SizeSource::new(sizes, "/bytes/{size}").unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let large = (0..10_000)
            .filter(|_| source.draw(&mut random).path == 1)
            .count();
        assert!((2_200..2_800).contains(&large), "{large}");
        assert_eq!(source.path(1), "/bytes/2048");
        assert!(read_sizes(file("1K -1\n").path()).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_a_path_or_none(line in "\\PC*") {
            let _ = path_of(&line);
        }
    }
}
