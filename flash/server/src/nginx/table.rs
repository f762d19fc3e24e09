// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the new configuration, in the order in which they are filled.

use std::fmt::Write;

use toml::Value;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    rows: Vec<(&'static str, Value)>,
}

impl Table {
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.rows.retain(|(its, _)| *its != key);
        self.rows.push((key, value.into()));
    }

    pub fn extend(&mut self, other: Table) {
        for (key, value) in other.rows {
            self.set(key, value);
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.rows.iter().any(|(its, _)| *its == key)
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        let row = self.rows.iter().find(|(its, _)| *its == key);
        row.map(|(_, value)| value)
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As a value within another table.
    pub fn inline(self) -> Value {
        let rows = self.rows.into_iter();
        Value::Table(rows.map(|(key, value)| (key.to_string(), value)).collect())
    }

    pub fn write(&self, out: &mut String) {
        for (key, value) in &self.rows {
            // Writing into memory cannot fail.
            let _ = writeln!(out, "{key} = {value}");
        }
    }
}

pub fn list<T: Into<Value>>(all: impl IntoIterator<Item = T>) -> Value {
    Value::Array(all.into_iter().map(Into::into).collect())
}

/// By names.
pub fn pairs(all: impl IntoIterator<Item = (String, String)>) -> Value {
    let rows = all.into_iter();
    Value::Table(
        rows.map(|(key, value)| (key, Value::String(value)))
            .collect(),
    )
}
