// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a regular expression of a location or a rewrite stands for, where flash has the same: a path, what is below a path,
//! or the ends of names.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Texts that an expression may stand for.
const MOST: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// These paths.
    Exact(Vec<String>),
    /// What begins so.
    Below(Vec<String>),
    /// Names that end so, below a path.
    Ending { below: String, endings: Vec<String> },
    /// As `Ending`, also with more of the path behind it: a script.
    Script { below: String, endings: Vec<String> },
    /// Names that begin with a dot.
    Hidden,
}

/// A part of a text for which an expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Letter(char),
    /// Any text.
    Any,
    Start,
    End,
}

/// What may be behind the name of a script.
const INFO: [&str; 10] = [
    "(/|$)", "(?:/|$)", "($|/)", "(?:$|/)", "(/.*)?$", "(/.+)?$", "(/.*)$", "(/.+)$", "(.*)$",
    "(|/.*)$",
];

/// `None`: it is none of these, or cannot be read.
pub fn shape(expression: &str) -> Option<Shape> {
    let hidden = ["/\\.", "^/\\.", "(^|/)\\.", "(?:^|/)\\.", "(/\\.", "/(\\."];
    let is_hidden = hidden.iter().any(|begin| expression.starts_with(begin));
    // `/\.php$` names a script.
    if is_hidden && !expression.contains("\\.php") && !expression.contains("\\.well-known/") {
        return Some(Shape::Hidden);
    }
    let info = INFO.iter().find_map(|end| expression.strip_suffix(end));
    let has_info = info.is_some();
    let body = match info {
        Some(body) => format!("{body}$"),
        None => expression.to_string(),
    };
    let hir = regex_syntax::ParserBuilder::new()
        .build()
        .parse(&body)
        .ok()?;
    let mut all = texts(&hir)?;
    for text in &mut all {
        // An expression that is not anchored may begin and end anywhere.
        if text.first() != Some(&Part::Start) && text.first() != Some(&Part::Any) {
            text.insert(0, Part::Any);
        }
        if text.last() != Some(&Part::End) && text.last() != Some(&Part::Any) {
            text.push(Part::Any);
        }
        text.dedup_by(|a, b| *a == Part::Any && *b == Part::Any);
    }
    let split: Option<Vec<Literals>> = all.iter().map(|text| split(text)).collect();
    together(&split?, has_info)
}

/// The literals of a text: the one that it begins with, those behind any text, and whether it ends with the last.
type Literals = (Option<String>, Vec<String>, bool);

fn split(text: &[Part]) -> Option<Literals> {
    let begins = text.first() == Some(&Part::Start);
    let ends = text.last() == Some(&Part::End);
    let inner = &text[usize::from(begins)..text.len() - usize::from(ends)];
    let mut literals = vec![String::new()];
    for part in inner {
        match part {
            Part::Letter(letter) => literals.last_mut()?.push(*letter),
            Part::Any => literals.push(String::new()),
            Part::Start | Part::End => return None,
        }
    }
    let first = literals.remove(0);
    Some((begins.then_some(first), literals, ends))
}

fn together(all: &[Literals], has_info: bool) -> Option<Shape> {
    let begins: Vec<&str> = all
        .iter()
        .filter_map(|(begin, _, _)| begin.as_deref())
        .collect();
    let exact = |one: &Literals| one.0.is_some() && one.1.is_empty() && one.2;
    if all.iter().all(exact) && begins.iter().all(|path| path.starts_with('/')) {
        let paths: Vec<String> = begins.iter().map(ToString::to_string).collect();
        return Some(
            match has_info && paths.iter().all(|path| path.contains('.')) {
                true => Shape::Script {
                    below: "/".to_string(),
                    endings: paths,
                },
                false if has_info => Shape::Below(paths),
                false => Shape::Exact(paths),
            },
        );
    }
    let below =
        |one: &Literals| one.0.is_some() && one.1.len() == 1 && one.1[0].is_empty() && !one.2;
    if all.iter().all(below)
        && begins
            .iter()
            .all(|path| path.len() > 1 && path.starts_with('/'))
    {
        return Some(Shape::Below(
            begins.iter().map(ToString::to_string).collect(),
        ));
    }
    let mut found: Option<(String, Vec<String>)> = None;
    for (begin, behind, ends) in all {
        let [ending] = behind.as_slice() else {
            return None;
        };
        let below = match begin.as_deref() {
            None | Some("" | "/") => "/",
            Some(path) if path.starts_with('/') && path.ends_with('/') => path,
            Some(_) => return None,
        };
        // `[^/]\.php` has a name before its ending.
        if !ends || ending.len() < 2 || !ending.starts_with('.') || ending.contains('/') {
            return None;
        }
        match &mut found {
            Some((its, endings)) if its == below => endings.push(ending.to_ascii_lowercase()),
            Some(_) => return None,
            None => found = Some((below.to_string(), vec![ending.to_ascii_lowercase()])),
        }
    }
    let (below, mut endings) = found?;
    endings.sort();
    endings.dedup();
    Some(match has_info {
        true => Shape::Script { below, endings },
        false => Shape::Ending { below, endings },
    })
}

fn texts(hir: &Hir) -> Option<Vec<Vec<Part>>> {
    let all = match hir.kind() {
        HirKind::Empty => vec![Vec::new()],
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            vec![text.chars().map(Part::Letter).collect()]
        }
        HirKind::Look(Look::Start) => vec![vec![Part::Start]],
        HirKind::Look(Look::End) => vec![vec![Part::End]],
        HirKind::Look(_) => return None,
        HirKind::Class(class) => letters(class)?,
        HirKind::Capture(capture) => texts(&capture.sub)?,
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max) {
            (0, Some(1)) => {
                let mut all = texts(&repetition.sub)?;
                all.push(Vec::new());
                all
            }
            (0 | 1, None) => match texts(&repetition.sub)?.as_slice() {
                [one] if one.as_slice() == [Part::Any] => vec![vec![Part::Any]],
                _ => return None,
            },
            _ => return None,
        },
        HirKind::Concat(parts) => {
            let mut all: Vec<Vec<Part>> = vec![Vec::new()];
            for part in parts {
                let ends = texts(part)?;
                if all.len() * ends.len() > MOST {
                    return None;
                }
                let joined = all.iter().flat_map(|begin| {
                    ends.iter()
                        .map(move |end| [begin.as_slice(), end.as_slice()].concat())
                });
                all = joined.collect();
            }
            all
        }
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(texts(part)?);
            }
            all
        }
    };
    (all.len() <= MOST).then_some(all)
}

fn letters(class: &Class) -> Option<Vec<Vec<Part>>> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let count: usize = class.iter().map(|range| range.len()).sum();
    match count {
        1..=8 => Some(
            class
                .iter()
                .flat_map(|range| range.start()..=range.end())
                .map(|letter| vec![Part::Letter(letter)])
                .collect(),
        ),
        // `.` and `[^/]`.
        1_000_000.. => Some(vec![vec![Part::Any]]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ending(below: &str, endings: &[&str]) -> Option<Shape> {
        let endings = endings.iter().map(ToString::to_string).collect();
        let below = below.to_string();
        Some(Shape::Ending { below, endings })
    }

    fn script(below: &str, endings: &[&str]) -> Option<Shape> {
        let endings = endings.iter().map(ToString::to_string).collect();
        let below = below.to_string();
        Some(Shape::Script { below, endings })
    }

    #[test]
    fn common_expressions_have_a_shape() {
        let paths = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (expression, expected) in [
            (r"\.php$", ending("/", &[".php"])),
            (r"[^/]\.php(/|$)", script("/", &[".php"])),
            (r"^(.+\.php)(/.+)$", script("/", &[".php"])),
            (r"^(.+?\.php)(/.*)?$", script("/", &[".php"])),
            (r"\.php(?:$|/)", script("/", &[".php"])),
            (r"^/index\.php(/|$)", script("/", &["/index.php"])),
            (
                r"\.(js|css|png|jpe?g|svg)$",
                ending("/", &[".css", ".jpeg", ".jpg", ".js", ".png", ".svg"]),
            ),
            (r".*\.(?:ico|gif)$", ending("/", &[".gif", ".ico"])),
            (r"^/assets/.*\.css$", ending("/assets/", &[".css"])),
            (r"/\.", Some(Shape::Hidden)),
            (r"/\.ht", Some(Shape::Hidden)),
            (r"/\.(?!well-known).*", Some(Shape::Hidden)),
            (r"(^|/)\.", Some(Shape::Hidden)),
            (
                r"^/(api|auth)/",
                Some(Shape::Below(paths(&["/api/", "/auth/"]))),
            ),
            (r"^/old/(.*)$", None),
            (
                r"^/robots\.txt$",
                Some(Shape::Exact(paths(&["/robots.txt"]))),
            ),
            (r"/(?:uploads|files)/.*\.php$", None),
            (r"^/\d+$", None),
            (r"(?=a)", None),
            (r"\.", None),
        ] {
            let found = shape(expression);
            // What is below a path may be written with an end.
            if expression == r"^/old/(.*)$" {
                assert_eq!(found, Some(Shape::Below(paths(&["/old/"]))));
                continue;
            }
            assert_eq!(found, expected, "{expression}");
        }
    }

    proptest! {
        #[test]
        fn any_expression_has_an_end(text in "[ab/.*+?|()\\[\\]\\\\^${}0-9-]{0,40}") {
            let _ = shape(&text);
        }
    }
}
