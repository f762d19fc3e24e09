//! Resolves the words of a predicate: fields, names, numbers. An unknown word is an error at its
//! place, with the nearest known word.

use super::fields::{Field, Kind, Number};
use super::parse::{Raw, RawTest, Word};
use super::values::{self, CallSet, Glob};
use super::{Error, Expression, Operator, SiteTest, Test};
use crate::labels::{Class, Labels};
use crate::COMM_LEN;

pub(super) fn expression(text: &str, raw: &Raw) -> Result<Expression, Error> {
    let boxed = |raw| expression(text, raw).map(Box::new);
    Ok(match raw {
        Raw::Test(raw) => Expression::Test(Check { text }.test(raw)?),
        Raw::Not(inner) => expression(text, inner)?.negated(),
        Raw::And(left, right) => Expression::And(boxed(left)?, boxed(right)?),
        Raw::Or(left, right) => Expression::Or(boxed(left)?, boxed(right)?),
    })
}

struct Check<'a> {
    text: &'a str,
}

impl Check<'_> {
    fn test(&self, raw: &RawTest) -> Result<Test, Error> {
        let field = self.field(&raw.field)?;
        let Some((operator, place, values)) = &raw.comparison else {
            return match field {
                Field::Restarted => Ok(Test::Restarted),
                _ => Err(self.alone(field, &raw.field)),
            };
        };
        let operator = *operator;
        let orders = !matches!(
            operator,
            Operator::Equal | Operator::NotEqual | Operator::In
        );
        if orders && !matches!(field, Field::Number(_) | Field::Restarted) {
            let message = format!("`{}` is a name: names have no order", field.name());
            let error = Error::new(self.text, place.clone(), message);
            return Err(error.help("Compare it by `==`, `!=` or `in (a, b)`."));
        }
        Ok(match field {
            Field::Restarted => {
                let message = "`restarted` stands alone";
                return Err(Error::new(self.text, place.clone(), message)
                    .help("Write `restarted` or `!restarted`."));
            }
            Field::Number(field) => Test::Number {
                field,
                operator,
                values: each(values, |value| self.number(field, value))?,
            },
            Field::Error => Test::Error {
                operator,
                values: each(values, |value| self.error(value))?,
            },
            Field::Syscall => Test::Call {
                operator,
                calls: CallSet::new(each(values, |value| self.call(value))?),
            },
            Field::Comm => Test::Comm {
                operator,
                names: each(values, |value| self.comm(value))?,
            },
            Field::CpuOwner => Test::CpuOwner {
                operator,
                names: each(values, |value| self.comm(value))?,
            },
            Field::Label => Test::Slept {
                operator,
                at: SiteTest::label(each(values, |value| self.label(value))?),
            },
            Field::Class => Test::Slept {
                operator,
                at: SiteTest::class(each(values, |value| self.class(value))?),
            },
        })
    }

    fn field(&self, word: &Word) -> Result<Field, Error> {
        if let Some(field) = Field::all().find(|field| field.name() == word.text) {
            return Ok(field);
        }
        let names: Vec<&str> = Field::all().map(Field::name).collect();
        let message = format!("there is no field `{}`", word.text);
        let error = self.unknown(word, message, &names);
        Err(match error.help {
            Some(_) => error,
            None => error.help(format!("The fields are {}.", names.join(", "))),
        })
    }

    /// The error for a field without a comparison.
    fn alone(&self, field: Field, word: &Word) -> Error {
        let example = match field {
            Field::Number(number) => match number.kind() {
                Kind::Time => "> 1ms",
                Kind::Signed => "< 0",
                Kind::Count => "> 0",
                Kind::Word => "== 3",
            },
            Field::Syscall => "== openat",
            Field::Error => "!= none",
            Field::Label => "== \"page read\"",
            Field::Class => "== disk",
            Field::Comm => "== \"worker*\"",
            Field::CpuOwner => "== gzip",
            Field::Restarted => "",
        };
        let name = field.name();
        let message = format!("`{name}` is compared with nothing");
        Error::new(self.text, word.place.clone(), message)
            .help(format!("Write it as in `{name} {example}`."))
    }

    fn number(&self, field: Number, word: &Word) -> Result<i128, Error> {
        let fail = |message: String| Err(Error::new(self.text, word.place.clone(), message));
        let name = Field::Number(field).name();
        let range = match field.kind() {
            Kind::Time => {
                return match values::parse_time(&word.text) {
                    Ok(time) => Ok(time),
                    Err(message) => fail(message),
                }
            }
            Kind::Signed => i128::from(i64::MIN)..=i128::from(i64::MAX),
            Kind::Count => 0..=i128::from(u64::MAX),
            Kind::Word => i128::from(i64::MIN)..=i128::from(u64::MAX),
        };
        let Some(number) = values::parse_integer(&word.text) else {
            if values::parse_time(&word.text).is_ok() {
                return fail(format!("`{name}` is not a time, but a number"));
            }
            let is_error = values::errors().iter().any(|(name, _)| *name == word.text);
            if is_error && field == Number::Ret {
                let error = Error::new(self.text, word.place.clone(), "`ret` is a number");
                return Err(error.help(format!("For errors, write `error == {}`.", word.text)));
            }
            return fail(format!("`{}` is not a number", word.text));
        };
        if !range.contains(&number) {
            return fail(format!("`{name}` is never {number}"));
        }
        // A negative number stands for the same bits as an unsigned word.
        Ok(match field.kind() {
            Kind::Word if number < 0 => number + (1 << 64),
            _ => number,
        })
    }

    fn error(&self, word: &Word) -> Result<i32, Error> {
        let errors = values::errors();
        let upper = word.text.to_ascii_uppercase();
        if let Some((_, number)) = errors.iter().find(|(name, _)| *name == word.text) {
            return Ok(*number);
        }
        if upper.starts_with("ERESTART") {
            let message = "a piece of a restarted call has no error";
            return Err(Error::new(self.text, word.place.clone(), message)
                .help("Write `restarted` for such pieces."));
        }
        let names: Vec<&str> = errors.iter().map(|(name, _)| name.as_str()).collect();
        let error = self.unknown(word, format!("there is no error `{}`", word.text), &names);
        Err(match error.help {
            Some(_) => error,
            None => error.help("Errors have names as in errno(3), such as ENOENT; `none` is none."),
        })
    }

    fn call(&self, word: &Word) -> Result<Glob, Error> {
        let glob = self.glob(word)?;
        let names = values::call_names();
        let by_number = word.text.strip_prefix("syscall_");
        if names.iter().any(|name| glob.matches(name)) || by_number.is_some() {
            return Ok(glob);
        }
        let message = match glob.is_exact() {
            true => format!("there is no system call `{}`", word.text),
            false => format!("no system call matches `{}`", word.text),
        };
        let native: Vec<&str> = names.iter().map(String::as_str).collect();
        Err(self.unknown(word, message, &native))
    }

    fn comm(&self, word: &Word) -> Result<Glob, Error> {
        let glob = self.glob(word)?;
        if glob.is_exact() && word.text.len() >= COMM_LEN {
            let message = format!(
                "names of threads and processes have {} bytes at most",
                COMM_LEN - 1
            );
            return Err(Error::new(self.text, word.place.clone(), message).help(
                "The kernel keeps the beginning of longer ones; `*` stands for any characters.",
            ));
        }
        Ok(glob)
    }

    /// A label of the rules, or a kernel function: sites that no rule knows are labelled with their
    /// function.
    fn label(&self, word: &Word) -> Result<Glob, Error> {
        let glob = self.glob(word)?;
        let known: Vec<&str> = Labels::builtin().names().collect();
        if !glob.is_exact() || known.contains(&word.text.as_str()) {
            return Ok(glob);
        }
        let words = word.text.replace(['_', '-'], " ");
        let meant = known.iter().find(|name| **name == words);
        if word.text.contains('_') && meant.is_none() {
            return Ok(glob);
        }
        let message = format!("no rule gives the label `{}`", word.text);
        let error = self.unknown(word, message, &known);
        Err(match (meant, &error.help) {
            (Some(meant), _) => error.help(format!("Did you mean \"{meant}\"?")),
            (_, Some(_)) => error,
            _ => error.help(format!(
                "`debox run` shows labels in its table of sleeps. For a kernel function's name \
                 write \"{}*\".",
                word.text
            )),
        })
    }

    fn class(&self, word: &Word) -> Result<Glob, Error> {
        let glob = self.glob(word)?;
        let classes = Class::ALL.map(Class::as_str);
        if classes.iter().any(|class| glob.matches(class)) {
            return Ok(glob);
        }
        let message = format!("there is no class `{}`", word.text);
        Err(self
            .unknown(word, message, &classes)
            .help(format!("The classes are {}.", classes.join(", "))))
    }

    fn glob(&self, word: &Word) -> Result<Glob, Error> {
        if word.text.is_empty() {
            return Err(Error::new(self.text, word.place.clone(), "a name is empty"));
        }
        Ok(Glob::new(&word.text))
    }

    /// An error for an unknown name, with similar names.
    fn unknown(&self, word: &Word, message: String, names: &[&str]) -> Error {
        let error = Error::new(self.text, word.place.clone(), message);
        match nearest(&word.text, names) {
            Some(name) if name.chars().all(super::parse::is_word) => {
                error.help(format!("Did you mean `{name}`?"))
            }
            Some(name) => error.help(format!("Did you mean \"{name}\"?")),
            None => error,
        }
    }
}

fn each<T>(words: &[Word], check: impl Fn(&Word) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    words.iter().map(check).collect()
}

/// The most similar name, if it is similar enough.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let most = (word.chars().count() / 3).max(1);
    let lower = word.to_lowercase();
    names
        .iter()
        .map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), *name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
