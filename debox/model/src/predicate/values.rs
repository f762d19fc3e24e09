//! Values that fields are compared with.

use std::sync::OnceLock;

use syscalls::Errno;

use crate::calls;
use crate::calls::{CALL_IA32, CALL_NONE};

/// Call numbers in each table.
pub(super) const CALLS: u32 = 512;
/// The probes' value for call numbers that are in no table.
const NO_CALL: u32 = 0xffff;

/// A pattern for a name: `*` stands for any characters, none included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob(String);

impl Glob {
    pub fn new(pattern: &str) -> Glob {
        Glob(pattern.to_string())
    }

    pub fn pattern(&self) -> &str {
        &self.0
    }

    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut left) = name.strip_prefix(first) else {
            return false;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // Matching each part at its first occurrence leaves the most text for the parts after it.
        for part in middle.split('*') {
            match left.find(part) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        left.ends_with(last)
    }
}

/// The set of calls that some patterns match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallSet {
    pub names: Vec<Glob>,
    pub bits: CallBits,
}

/// A [`CallSet`] in the probes' form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CallBits {
    native: [u64; 8],
    ia32: [u64; 8],
    /// 1: the 64-bit table's numbers that it does not have, 2: the 32-bit table's, 4: no call
    others: u64,
}

impl CallSet {
    pub fn new(names: Vec<Glob>) -> CallSet {
        let mut bits = CallBits::default();
        let every = (0..CALLS).chain([NO_CALL]);
        let every = every
            .clone()
            .chain(every.map(|number| number | CALL_IA32))
            .chain([CALL_NONE]);
        for call in every {
            let name = calls::name(call);
            if names.iter().any(|glob| glob.matches(&name)) {
                bits.add(call);
            }
        }
        CallSet { names, bits }
    }

    /// Whether `(user)` is named explicitly; a pattern like `*` matches it, too.
    pub fn names_user_time(&self) -> bool {
        self.names.iter().any(|glob| glob.pattern() == calls::USER)
    }
}

impl CallBits {
    fn add(&mut self, call: u32) {
        match self.word(call) {
            Place::Native(word, bit) => self.native[word] |= bit,
            Place::Ia32(word, bit) => self.ia32[word] |= bit,
            Place::Other(bit) => self.others |= bit,
        }
    }

    pub fn has(&self, call: u32) -> bool {
        match self.word(call) {
            Place::Native(word, bit) => self.native[word] & bit != 0,
            Place::Ia32(word, bit) => self.ia32[word] & bit != 0,
            Place::Other(bit) => self.others & bit != 0,
        }
    }

    fn word(&self, call: u32) -> Place {
        let number = call & !CALL_IA32;
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        match (call & CALL_IA32 != 0, number < CALLS) {
            _ if call == CALL_NONE => Place::Other(4),
            (false, true) => Place::Native(word, bit),
            (true, true) => Place::Ia32(word, bit),
            (false, false) => Place::Other(1),
            (true, false) => Place::Other(2),
        }
    }
}

enum Place {
    Native(usize, u64),
    Ia32(usize, u64),
    Other(u64),
}

/// The names of all calls that exist, and of the time between calls.
pub(super) fn call_names() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let tables = (0..CALLS).chain((0..CALLS).map(|number| number | CALL_IA32));
        let named = tables.map(calls::name);
        let known = named.filter(|name| !name.starts_with("syscall_"));
        known.chain([calls::USER.to_string()]).collect()
    })
}

/// The names of errors; the first name of each number is shown.
pub(super) fn errors() -> &'static [(String, i32)] {
    static ERRORS: OnceLock<Vec<(String, i32)>> = OnceLock::new();
    ERRORS.get_or_init(|| {
        let known = (1..=133).filter_map(|number| Some((Errno::new(number).name()?, number)));
        let known = known.map(|(name, number)| (name.to_string(), number));
        // Synonyms from errno(3).
        let also = [("EWOULDBLOCK", 11), ("EDEADLOCK", 35), ("ENOTSUP", 95)];
        let also = also.map(|(name, number)| (name.to_string(), number));
        std::iter::once(("none".to_string(), 0))
            .chain(known)
            .chain(also)
            .collect()
    })
}

const UNITS: [(&str, u64); 5] = [
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a time in nanoseconds.
pub(super) fn parse_time(text: &str) -> Result<i128, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && fraction.chars().all(|c| c.is_ascii_digit());
    if !is_number || number.ends_with('.') {
        return Err(format!(
            "`{text}` is not a time: write it as in 200us, 1.5ms or 2s"
        ));
    }
    let unit = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, nanoseconds)) => u128::from(*nanoseconds),
        None if unit == "µs" || unit == "μs" => 1_000,
        None if unit.is_empty() && fraction.is_empty() => 1,
        None if unit.is_empty() => {
            return Err(format!("`{text}` needs a unit: ns, us, ms, s or min"));
        }
        None => {
            return Err(format!(
                "`{unit}` is not a unit of time: ns, us, ms, s and min are"
            ))
        }
    };
    let too_long = || format!("`{text}` is too long a time");
    let digits = u32::try_from(fraction.len()).map_err(|_| too_long())?;
    let tens = 10u128.checked_pow(digits).ok_or_else(too_long)?;
    let all: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| too_long())?;
    let nanoseconds = all.checked_mul(unit).ok_or_else(too_long)?;
    if nanoseconds % tens != 0 {
        return Err(format!("`{text}` is not a whole number of nanoseconds"));
    }
    let nanoseconds = u64::try_from(nanoseconds / tens).map_err(|_| too_long())?;
    Ok(i128::from(nanoseconds))
}

/// A time in the largest unit of which it is a whole number.
pub(super) fn print_time(nanoseconds: i128) -> String {
    let exact = |(_, unit): &&(&str, u64)| nanoseconds % i128::from(*unit) == 0;
    match UNITS.iter().find(exact) {
        Some((name, unit)) if nanoseconds != 0 => {
            format!("{}{name}", nanoseconds / i128::from(*unit))
        }
        _ => format!("{nanoseconds}ns"),
    }
}

/// Reads a number: decimal, or hexadecimal, octal or binary after 0x, 0o or 0b.
pub(super) fn parse_integer(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let radix = match digits.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 10,
    };
    let digits = if radix == 10 { digits } else { &digits[2..] };
    if !digits.chars().next()?.is_digit(radix) {
        return None; // no second sign
    }
    Some(sign * i128::from(u64::from_str_radix(digits, radix).ok()?))
}
