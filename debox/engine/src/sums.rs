//! The probes' rows of sums: how each field adds up, and that it is sent to clients of the broker. One line declares both.
//!
//! A field that is new in the probes' struct and has no line here is an error of compilation. A client may be another user:
//! what only root may see must not be in these rows.

use serde::{Deserialize, Serialize};

use crate::tables::{self, types, PARTS};

/// Defines the form in which a row of the probes is sent, its conversions, and how one row is added to another. Each field
/// has the type in which it is sent and the function that adds it up.
macro_rules! sums {
    (
        $(#[$about:meta])*
        $name:ident of $type:ident, added by $add:ident {
            $($field:ident: $kind:ty = $how:ident),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct $name {
            $($field: $kind),+
        }

        impl From<&types::$type> for $name {
            fn from(types::$type { $($field),+ }: &types::$type) -> $name {
                $name { $($field: Sent::sent($field)),+ }
            }
        }

        impl From<&$name> for types::$type {
            fn from(sent: &$name) -> types::$type {
                types::$type { $($field: sent.$field.received()),+ }
            }
        }

        /// Adds a row to the sum of several.
        pub(crate) fn $add(sum: &mut types::$type, row: &types::$type) {
            $($how(&mut sum.$field, &row.$field);)+
        }
    };
}

sums! {
    /// What the calls with one number did.
    Calls of row, added by add_to_row {
        calls: u64 = add,
        errors: u64 = add,
        restarts: u64 = add,
        parts: [u64; PARTS] = add_each,
        faults_minor: u64 = add,
        faults_major: u64 = add,
        max_ns: u64 = keep_larger,
        spin_ns: u64 = add,
        read_bytes: u64 = add,
        write_bytes: u64 = add,
        histogram: Sparse = add_each,
    }
}

sums! {
    /// What could not be counted.
    Lost of lost, added by add_lost {
        records: u64 = add,
        sleeps: u64 = add,
        stacks: u64 = add,
        threads: u64 = add,
        rows: u64 = add,
        switches: u64 = add,
        between: [u64; PARTS] = add_each,
        in_calls: [u64; PARTS] = add_each,
        calls: u64 = add,
        faults_minor: u64 = add,
        faults_major: u64 = add,
        unseen_wait_ns: u64 = add,
    }
}

fn add(sum: &mut u64, count: &u64) {
    tables::add(sum, *count);
}

fn keep_larger(largest: &mut u64, value: &u64) {
    *largest = (*largest).max(*value);
}

fn add_each(sums: &mut [u64], counts: &[u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        add(sum, count);
    }
}

/// The form in which a field is sent.
trait Sent<Field> {
    fn sent(field: &Field) -> Self;
    fn received(&self) -> Field;
}

impl<T: Copy> Sent<T> for T {
    fn sent(field: &T) -> T {
        *field
    }

    fn received(&self) -> T {
        *self
    }
}

/// An array that is mostly zeros: the places of the others, and these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sparse(Vec<(u16, u64)>);

impl<const LENGTH: usize> Sent<[u64; LENGTH]> for Sparse {
    fn sent(all: &[u64; LENGTH]) -> Sparse {
        let numbered = (0..).zip(all.iter().copied());
        Sparse(numbered.filter(|(_, value)| *value > 0).collect())
    }

    fn received(&self) -> [u64; LENGTH] {
        let mut all = [0; LENGTH];
        for (place, value) in &self.0 {
            if let Some(to) = all.get_mut(usize::from(*place)) {
                *to = *value;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{bytes_of, read_value};

    /// Each field is a `u64`, or an array of them.
    fn all<T: Copy>(value: u64) -> T {
        let words = vec![value; std::mem::size_of::<T>() / 8];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        read_value(&bytes).expect("the right size")
    }

    #[test]
    fn every_field_is_added() {
        let (mut row, mut lost) = (all::<types::row>(3), all::<types::lost>(3));
        add_to_row(&mut row, &all(5));
        add_lost(&mut lost, &all(5));
        let mut sum = all::<types::row>(8);
        sum.max_ns = 5;
        assert_eq!(bytes_of(&row), bytes_of(&sum));
        assert_eq!(bytes_of(&lost), bytes_of(&all::<types::lost>(8)));
    }

    #[test]
    fn every_field_is_sent() {
        let (row, lost) = (all::<types::row>(0x0101), all::<types::lost>(0x0101));
        let received = types::row::from(&Calls::from(&row));
        assert_eq!(bytes_of(&received), bytes_of(&row));
        let received = types::lost::from(&Lost::from(&lost));
        assert_eq!(bytes_of(&received), bytes_of(&lost));
    }

    /// A client must not trust the broker's message.
    #[test]
    fn places_beyond_the_end_are_left_out() {
        let received: [u64; 2] = Sparse(vec![(0, 7), (9, 8)]).received();
        assert_eq!(received, [7, 0]);
    }
}
