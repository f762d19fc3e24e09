//! Interned texts: each distinct text of all files has a number, so that sums are keyed by numbers.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use rustc_hash::FxHashMap;

/// The number of a text; [`NONE`] if there is no text.
pub type Name = u32;

/// No text.
pub const NONE: Name = u32::MAX;

/// Stands for texts beyond the limits.
pub const TOO_MANY: Name = 0;

/// Limits for the number of texts and their bytes: a damaged or hostile file may have any number.
const TEXTS_MAX: usize = 2_000_000;
const BYTES_MAX: usize = 512 << 20;

#[derive(Debug)]
pub struct Names {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    by_text: FxHashMap<Arc<str>, Name>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Default for Names {
    fn default() -> Self {
        let other: Arc<str> = "(other)".into();
        Names {
            inner: Mutex::new(Inner {
                by_text: FxHashMap::from_iter([(Arc::clone(&other), TOO_MANY)]),
                texts: vec![other],
                bytes: 0,
            }),
        }
    }
}

impl Names {
    pub fn of(&self, text: &str) -> Name {
        let mut inner = self.inner.lock().unwrap_or_else(|lock| lock.into_inner());
        if let Some(name) = inner.by_text.get(text) {
            return *name;
        }
        if inner.texts.len() >= TEXTS_MAX || inner.bytes + text.len() > BYTES_MAX {
            return TOO_MANY;
        }
        let name = inner.texts.len() as Name;
        let text: Arc<str> = text.into();
        inner.bytes += text.len();
        inner.texts.push(Arc::clone(&text));
        inner.by_text.insert(text, name);
        name
    }

    pub fn text(&self, name: Name) -> Option<Arc<str>> {
        let inner = self.inner.lock().unwrap_or_else(|lock| lock.into_inner());
        inner.texts.get(name as usize).cloned()
    }

    /// The text of a name that is not [`NONE`].
    pub fn get(&self, name: Name) -> Arc<str> {
        self.text(name).unwrap_or_else(|| "".into())
    }
}

/// Translates the dictionary of a text column into names. Batches of a group share a dictionary, so
/// it is translated once.
#[derive(Default)]
pub struct Translator {
    values: Option<ArrayRef>,
    names: Vec<Name>,
}

/// The names of a batch's rows. In a column that was not read, no row has a name.
pub struct Column<'a> {
    keys: &'a [u32],
    nulls: Option<&'a NullBuffer>,
    names: &'a [Name],
}

impl Translator {
    pub fn column<'a>(
        &'a mut self,
        column: Option<&'a ArrayRef>,
        names: &Names,
    ) -> Result<Column<'a>> {
        let Some(column) = column else {
            return Ok(Column {
                keys: &[],
                nulls: None,
                names: &[],
            });
        };
        let dictionary = column
            .as_dictionary_opt::<UInt32Type>()
            .context("a column is not text")?;
        let values = dictionary.values();
        let same = self
            .values
            .as_ref()
            .is_some_and(|known| known.to_data().ptr_eq(&values.to_data()));
        if !same {
            let texts = values.as_string_opt::<i32>();
            let texts = texts.context("a column is not text")?;
            self.names.clear();
            let translated = texts
                .iter()
                .map(|text| text.map_or(NONE, |text| names.of(text)));
            self.names.extend(translated);
            self.values = Some(Arc::clone(values));
        }
        // A batch without any text in this column has a key that refers to nothing.
        let none = dictionary.keys().null_count() == dictionary.len();
        Ok(Column {
            keys: if none {
                &[]
            } else {
                dictionary.keys().values()
            },
            nulls: dictionary
                .keys()
                .nulls()
                .filter(|nulls| nulls.null_count() > 0),
            names: &self.names,
        })
    }
}

impl<'a> Column<'a> {
    #[inline]
    pub fn get(&self, row: usize) -> Name {
        self.names.get(self.key(row)).copied().unwrap_or(NONE)
    }

    /// The row's index into the names; beyond their end if it has none.
    #[inline]
    pub fn key(&self, row: usize) -> usize {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return usize::MAX;
        }
        self.keys.get(row).map_or(usize::MAX, |key| *key as usize)
    }

    /// The names in the column's dictionary.
    pub fn names(&self) -> &'a [Name] {
        self.names
    }
}
