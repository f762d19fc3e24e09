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

/// The colours of a rule, by name.
fn colours(selector: &str) -> BTreeMap<&'static str, Linear> {
    let (_, rest) = STYLE.split_once(selector).expect("the rule");
    let (rule, _) = rest.split_once('}').expect("its end");
    let values = rule
        .split(['{', ';'])
        .filter_map(|line| line.split_once(':'));
    values
        .filter_map(|(name, value)| {
            let name = name.trim().strip_prefix("--")?;
            let value = value.trim().strip_prefix('#')?;
            let part = |at: usize| {
                let value = u8::from_str_radix(value.get(at..at + 2)?, 16).ok()?;
                let value = f64::from(value) / 255.0;
                Some(match value <= 0.04045 {
                    true => value / 12.92,
                    false => ((value + 0.055) / 1.055).powf(2.4),
                })
            };
            Some((name, [part(0)?, part(2)?, part(4)?]))
        })
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
