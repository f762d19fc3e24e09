//! Values of options.

pub fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=1e8).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second, as in 2000".to_string()),
    }
}

pub fn parse_speed(text: &str) -> Result<f64, String> {
    match text.strip_suffix('x').unwrap_or(text).parse() {
        Ok(speed) if (0.001..=1e6).contains(&speed) => Ok(speed),
        _ => Err("expected how many times as fast, as in 1 or 10".to_string()),
    }
}

pub fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("expected a name and a value, as in workers=4".to_string()),
    }
}

/// A parameter and the values to try.
#[derive(Clone)]
pub struct Vary {
    pub name: String,
    pub values: Vec<String>,
}

pub fn parse_vary(text: &str) -> Result<Vary, String> {
    let (name, values) = parse_parameter(text)?;
    let values: Vec<String> = values.split(',').map(str::to_string).collect();
    if values.len() < 2 || values.iter().any(String::is_empty) {
        return Err("expected a name and two values or more, as in workers=1,2,4".to_string());
    }
    Ok(Vary { name, values })
}

pub fn parse_cpus(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(cpus) if (0.1..=4096.0).contains(&cpus) => Ok(cpus),
        _ => Err("expected a number of CPUs from 0.1 up, as in 0.5".to_string()),
    }
}

pub fn parse_load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(load) if (0.001..=20.0).contains(&load) => Ok(load),
        _ => Err("expected a part of the capacity, as in 0.8".to_string()),
    }
}

pub fn parse_level(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(level) if (0.0..=2.0).contains(&level) => Ok(level),
        _ => Err("expected a part of what the disk can do, from 0 to 2, as in 0.5".to_string()),
    }
}
