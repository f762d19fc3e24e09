//! The grammar: from text to words in their order, each with its place. Their meaning is checked
//! afterwards (`check.rs`); this module knows no names.
//!
//! ```text
//! predicate  = all { "||" all }
//! all        = operand { "&&" operand }
//! operand    = { "!" } ( "(" predicate ")" | test )
//! test       = word [ operator value | "in" "(" value { "," value } ")" ]
//! value      = word | quoted | "(user)"
//! ```

use std::ops::Range;

use winnow::combinator::{alt, cut_err, delimited, not, opt, preceded, repeat, separated};
use winnow::combinator::{separated_foldl1, terminated};
use winnow::error::{StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::stream::LocatingSlice;
use winnow::token::{none_of, one_of, take_while};

use super::{Error, Operator, TEXT_MAX};
use crate::calls::USER;

/// The deepest nesting of parentheses, which bounds the parser's recursion.
const NESTING_MAX: usize = 32;

/// A predicate whose words have not been checked.
#[derive(Debug)]
pub(super) enum Raw {
    Test(RawTest),
    Not(Box<Raw>),
    And(Box<Raw>, Box<Raw>),
    Or(Box<Raw>, Box<Raw>),
}

#[derive(Debug)]
pub(super) struct RawTest {
    pub field: Word,
    pub comparison: Option<(Operator, Range<usize>, Vec<Word>)>,
}

#[derive(Debug)]
pub(super) struct Word {
    pub text: String,
    pub place: Range<usize>,
}

type Input<'a> = LocatingSlice<&'a str>;

pub(super) fn parse(text: &str) -> Result<Raw, Error> {
    if text.len() > TEXT_MAX {
        let message = format!("the predicate has more than {TEXT_MAX} bytes");
        let shown: String = text.chars().take(40).chain("...".chars()).collect();
        return Err(Error::new(&shown, shown.len()..shown.len(), message));
    }
    if text.trim().is_empty() {
        return Err(Error::new(text, 0..0, "the predicate is empty")
            .help("Write one as in `syscall == openat && blocked > 1ms`."));
    }
    limit_nesting(text)?;
    delimited(space, predicate, space)
        .parse(LocatingSlice::new(text))
        .map_err(|error| explain(text, error.offset(), error.inner()))
}

fn limit_nesting(text: &str) -> Result<(), Error> {
    let mut depth = 0usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            let message = format!("more than {NESTING_MAX} parentheses in each other");
            return Err(Error::new(text, at..at + 1, message));
        }
    }
    Ok(())
}

/// Whether a character can be written without quotes.
pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || "_*.:/+-@%#".contains(character)
}

fn space(input: &mut Input<'_>) -> ModalResult<()> {
    take_while(0.., char::is_whitespace)
        .void()
        .parse_next(input)
}

fn wanted(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

fn predicate(input: &mut Input<'_>) -> ModalResult<Raw> {
    let or = delimited(space, "||", space);
    separated_foldl1(all, or, |left, _, right| {
        Raw::Or(Box::new(left), Box::new(right))
    })
    .parse_next(input)
}

fn all(input: &mut Input<'_>) -> ModalResult<Raw> {
    let and = delimited(space, "&&", space);
    separated_foldl1(cut_err(operand), and, |left, _, right| {
        Raw::And(Box::new(left), Box::new(right))
    })
    .parse_next(input)
}

fn operand(input: &mut Input<'_>) -> ModalResult<Raw> {
    let bang = (terminated('!', not('=')), space);
    let bangs: usize = repeat(0.., bang.void()).parse_next(input)?;
    let group = delimited(
        ('(', space),
        cut_err(predicate),
        (space, cut_err(')').context(wanted("`&&`, `||` or `)`"))),
    );
    let inner = alt((group, test.map(Raw::Test)))
        .context(wanted("a field, such as `blocked`, or `(`"))
        .parse_next(input)?;
    Ok(match bangs % 2 {
        0 => inner,
        _ => Raw::Not(Box::new(inner)),
    })
}

fn test(input: &mut Input<'_>) -> ModalResult<RawTest> {
    let field = word.parse_next(input)?;
    let comparison = opt(preceded(space, operator.with_span())).parse_next(input)?;
    let Some((operator, place)) = comparison else {
        let comparison = None;
        return Ok(RawTest { field, comparison });
    };
    space.parse_next(input)?;
    let values = match operator {
        Operator::In => cut_err(list).parse_next(input)?,
        _ => vec![cut_err(value).parse_next(input)?],
    };
    Ok(RawTest {
        field,
        comparison: Some((operator, place, values)),
    })
}

fn operator(input: &mut Input<'_>) -> ModalResult<Operator> {
    let in_word = terminated("in", not(one_of(is_word)));
    alt((
        "==".value(Operator::Equal),
        "!=".value(Operator::NotEqual),
        "<=".value(Operator::LessOrEqual),
        ">=".value(Operator::GreaterOrEqual),
        "<".value(Operator::Less),
        ">".value(Operator::Greater),
        in_word.value(Operator::In),
    ))
    .parse_next(input)
}

fn list(input: &mut Input<'_>) -> ModalResult<Vec<Word>> {
    let comma = (space, ',', space);
    delimited(
        ('('.context(wanted("`(`, as in `in (a, b)`")), space),
        separated(1.., cut_err(value), comma),
        (space, ')'.context(wanted("`,` or `)`"))),
    )
    .parse_next(input)
}

fn value(input: &mut Input<'_>) -> ModalResult<Word> {
    let user = USER.map(String::from).with_span().map(Word::new);
    alt((user, quoted, word))
        .context(wanted("a value"))
        .parse_next(input)
}

fn word(input: &mut Input<'_>) -> ModalResult<Word> {
    take_while(1.., is_word)
        .map(|text: &str| text.to_string())
        .with_span()
        .map(Word::new)
        .parse_next(input)
}

fn quoted(input: &mut Input<'_>) -> ModalResult<Word> {
    let escaped = preceded('\\', one_of(['"', '\\']));
    let characters = repeat(0.., alt((escaped, none_of(['"', '\\']))));
    let end = cut_err('"').context(wanted("`\"` at the end of the text in quotes"));
    delimited('"', characters, end)
        .with_span()
        .map(Word::new)
        .parse_next(input)
}

impl Word {
    fn new((text, place): (String, Range<usize>)) -> Word {
        Word { text, place }
    }
}

/// Turns a failure of the grammar into an error for the user.
fn explain(text: &str, offset: usize, error: &winnow::error::ContextError) -> Error {
    let rest = text.get(offset..).unwrap_or_default();
    let found = rest.chars().next();
    let expected = error.context().find_map(|context| match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    });
    let message = match (&expected, found) {
        (Some(expected), None) => format!("the predicate ends where {expected} should be"),
        (Some(expected), Some(_)) => format!("expected {expected}"),
        (None, _) => "expected `&&`, `||` or the end".to_string(),
    };
    let place = offset..offset + found.map_or(0, char::len_utf8);
    let error = Error::new(text, place, message);
    let meant = [
        ("=", "To compare, write `==`."),
        ("&", "For \"and\", write `&&`."),
        ("|", "For \"or\", write `||`."),
        ("and ", "For \"and\", write `&&`."),
        ("or ", "For \"or\", write `||`."),
        (
            "~",
            "To compare with a pattern, write `==`, as in `syscall == open*`.",
        ),
        ("'", "Put names with spaces in double quotes."),
    ];
    match meant.iter().find(|(begin, _)| rest.starts_with(begin)) {
        Some((_, help)) => error.help(*help),
        None if expected.is_none() && found.is_some_and(is_word) => {
            error.help("Put names with spaces in double quotes.")
        }
        None => error,
    }
}
