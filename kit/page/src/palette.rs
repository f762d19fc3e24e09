// SPDX-License-Identifier: MIT OR Apache-2.0
//! The colours of the pages: text can be read, and parts of the time can be told apart, also by people who do not see
//! red, green or blue.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../page/style.css");

/// Parts of the time that are drawn beside each other.
const PARTS: [&str; 10] = [
    "cpu",
    "irq",
    "runqueue",
    "preempted",
    "disk",
    "lock",
    "memory",
    "network",
    "process",
    "other",
];

/// WCAG 2.2: graphics need 3, text 4.5.
const GRAPHICS_MIN: f64 = 3.0;
const TEXT_MIN: f64 = 4.5;
/// In CIE L*a*b*; 2.3 is just noticeable.
const DISTANCE_MIN: f64 = 20.0;

type Linear = [f64; 3];

/// What is left of a colour, in linear RGB: G. M. Machado et al., "A Physiologically-based Model for Simulation of Color
/// Vision Deficiency" (2009), at full severity.
const SIGHTS: [(&str, [Linear; 3]); 4] = [
    (
        "all colours",
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    ),
    (
        "no red",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "no green",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
    (
        "no blue",
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ),
];

/// The values of a rule, by name.
fn values(selector: &str) -> BTreeMap<&'static str, &'static str> {
    let (_, rest) = STYLE.split_once(selector).expect("the rule");
    let (rule, _) = rest.split_once('}').expect("its end");
    let values = rule
        .split(['{', ';'])
        .filter_map(|line| line.split_once(':'));
    values
        .filter_map(|(name, value)| Some((name.trim().strip_prefix("--")?, value.trim())))
        .collect()
}

/// A colour as the style sheet writes it: its red, green and blue, each from 0 to 255.
fn written(value: &str) -> Option<[f64; 3]> {
    let value = value.strip_prefix('#')?;
    let part = |at: usize| {
        let part = u8::from_str_radix(value.get(at..at + 2)?, 16).ok()?;
        Some(f64::from(part))
    };
    Some([part(0)?, part(2)?, part(4)?])
}

fn linear(colour: [f64; 3]) -> Linear {
    colour.map(|part| {
        let part = part / 255.0;
        match part <= 0.04045 {
            true => part / 12.92,
            false => ((part + 0.055) / 1.055).powf(2.4),
        }
    })
}

/// The colours of a rule, by name.
fn colours(selector: &str) -> BTreeMap<&'static str, Linear> {
    let values = values(selector).into_iter();
    values
        .filter_map(|(name, value)| Some((name, linear(written(value)?))))
        .collect()
}

fn luminance(colour: &Linear) -> f64 {
    0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]
}

fn contrast(one: &Linear, other: &Linear) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn lab(colour: &Linear) -> Linear {
    let [r, g, b] = *colour;
    let f = |t: f64| match t > 0.008856 {
        true => t.cbrt(),
        false => 7.787 * t + 16.0 / 116.0,
    };
    let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
    let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn seen_as(colour: &Linear, sight: &[Linear; 3]) -> Linear {
    let row = |row: &Linear| row[0] * colour[0] + row[1] * colour[1] + row[2] * colour[2];
    [row(&sight[0]), row(&sight[1]), row(&sight[2])].map(|part| part.clamp(0.0, 1.0))
}

#[test]
fn parts_of_the_time_can_be_told_apart_and_text_can_be_read() {
    for theme in [":root {", ":root[data-theme=\"dark\"] {"] {
        let colours = colours(theme);
        let ground = &colours["ground"];
        for text in ["text", "quiet", "link"] {
            for behind in ["ground", "raised", "chosen"] {
                let found = contrast(&colours[text], &colours[behind]);
                assert!(found >= TEXT_MIN, "{theme} {text} on {behind}: {found:.1}");
            }
        }
        let found = contrast(&colours["warn"], &colours["warn-ground"]);
        assert!(found >= TEXT_MIN, "{theme} warn: {found:.1}");
        for (at, part) in PARTS.iter().enumerate() {
            let found = contrast(&colours[part], ground);
            assert!(found >= GRAPHICS_MIN, "{theme} {part}: {found:.1}");
            for other in &PARTS[..at] {
                for (sight, matrix) in &SIGHTS {
                    let [one, two] =
                        [part, other].map(|part| lab(&seen_as(&colours[part], matrix)));
                    let parts = one.iter().zip(&two);
                    let distance = parts.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(
                        distance >= DISTANCE_MIN,
                        "{theme} {part} and {other} look alike with {sight}: {distance:.0}"
                    );
                }
            }
        }
    }
}

/// A cell of the table of waits is shaded, at most as its style says, over the page or over a row that the pointer is on.
#[test]
fn text_can_be_read_in_the_darkest_cell() {
    for theme in [":root {", ":root[data-theme=\"dark\"] {"] {
        let values = values(theme);
        let number = |text: &str| text.trim().parse::<f64>().expect("a number");
        let heat: Vec<f64> = values["heat"].split(',').map(number).collect();
        let most = number(values["heat-most"]);
        let text = linear(written(values["text"]).expect("a colour"));
        for behind in ["ground", "raised"] {
            let mut cell = written(values[behind]).expect("a colour");
            for (part, heat) in cell.iter_mut().zip(&heat) {
                *part += most * (heat - *part);
            }
            let found = contrast(&text, &linear(cell));
            assert!(found >= TEXT_MIN, "{theme} on {behind}: {found:.2}");
        }
    }
    let small = STYLE
        .split_once("table.matrix small {")
        .expect("the rule")
        .1;
    let (small, _) = small.split_once('}').expect("its end");
    assert!(!small.contains("opacity"), "{small}");
}
