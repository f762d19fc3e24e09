use proptest::prelude::*;

use super::compile::Code;
use super::fields::error_of;
use super::values::{self, CallSet, Glob};
use super::*;
use crate::calls;

/// A record made up by the tests.
#[derive(Debug, Clone)]
struct Made {
    call: u32,
    numbers: Vec<Option<i128>>,
    restarted: bool,
    comm: String,
    /// `None`: unknown; "": no owner.
    cpu_owner: Option<String>,
    sites: Vec<Option<(String, String)>>,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            call: 257,
            numbers: vec![Some(0); Number::ALL.len()],
            restarted: false,
            comm: "worker/3".to_string(),
            cpu_owner: Some(String::new()),
            sites: Vec::new(),
        }
    }
}

impl Made {
    fn with(mut self, field: Number, value: i128) -> Made {
        self.numbers[field as usize] = Some(value);
        self
    }

    fn slept(mut self, label: &str, class: &str) -> Made {
        self.sites
            .push(Some((label.to_string(), class.to_string())));
        self
    }
}

impl Fields for Made {
    fn call(&self) -> u32 {
        self.call
    }
    fn number(&self, field: Number) -> Option<i128> {
        self.numbers[field as usize]
    }
    fn is_restarted(&self) -> bool {
        self.restarted
    }
    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }
    fn cpu_owner(&self) -> CpuOwner<'_> {
        match self.cpu_owner.as_deref() {
            None => CpuOwner::Unknown,
            Some("") => CpuOwner::Nobody,
            Some(comm) => CpuOwner::Named(comm),
        }
    }
    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>> {
        self.sites.iter().map(|site| {
            let (label, class) = site.as_ref()?;
            Some(Site { label, class })
        })
    }
}

fn holds(text: &str, record: &Made) -> bool {
    let predicate = Predicate::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let truth = predicate.truth(record);
    let program = predicate.compile().expect("short enough");
    assert_eq!(program.truth(record), truth, "{text}");
    predicate.holds(record)
}

fn error(text: &str) -> String {
    match Predicate::parse(text) {
        Ok(predicate) => panic!("`{text}` was read as `{predicate}`"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_example_means_what_it_says() {
    let text = r#"syscall == openat && blocked > 1ms && label != "epoll""#;
    let slow = Made::default().with(Number::Blocked, 1_000_001);
    assert!(holds(text, &slow));
    assert!(!holds(text, &slow.clone().with(Number::Blocked, 1_000_000)));
    assert!(!holds(text, &slow.clone().slept("epoll", "idle")));
    assert!(holds(text, &slow.clone().slept("inode lock", "lock")));
    assert!(!holds(text, &Made { call: 0, ..slow }));
}

#[test]
fn and_binds_tighter_than_or_and_not_binds_most() {
    let record = Made::default().with(Number::Ret, -2).with(Number::Wall, 7);
    for (text, wanted) in [
        ("wall == 7ns || wall == 8ns && ret == 0", true),
        ("(wall == 7ns || wall == 8ns) && ret == 0", false),
        ("!restarted && !(ret == 0)", true),
        ("!!!restarted", true),
        ("error == ENOENT&&syscall==open*", true),
        ("error in (EACCES, ENOENT)", true),
        ("error != none", true),
        ("ret in (-1, -2)", true),
        ("syscall in (read, write)", false),
        ("syscall == (user)", false),
        ("comm == worker*", true),
        ("comm == \"worker/3\"", true),
        ("comm != worker", true),
    ] {
        assert_eq!(holds(text, &record), wanted, "{text}");
    }
}

#[test]
fn a_call_that_slept_at_two_sites_has_both_labels() {
    let record = Made::default()
        .slept("page read", "disk")
        .slept("inode lock", "lock");
    assert!(holds("label == \"page read\"", &record));
    assert!(holds("label == \"inode lock\" && class == disk", &record));
    assert!(!holds("label != \"page read\"", &record));
    assert!(holds("label in (epoll, \"page *\")", &record));
    assert!(!holds("label == epoll", &Made::default()));
    assert!(holds("label != epoll", &Made::default()));
}

#[test]
fn the_owner_of_the_cpu_is_a_name_or_nobody() {
    let truth = |text: &str, owner: Option<&str>| {
        let record = Made {
            cpu_owner: owner.map(str::to_string),
            ..Made::default().with(Number::Throttled, 2_000_000)
        };
        let predicate = Predicate::parse(text).expect(text);
        let truth = predicate.truth(&record);
        let program = predicate.compile().expect(text);
        assert_eq!(program.truth(&record), truth, "{text}");
        truth
    };
    assert_eq!(truth("cpu_owner == gzip", Some("gzip")), Some(true));
    assert_eq!(truth("cpu_owner != gz*", Some("gzip")), Some(false));
    assert_eq!(
        truth("cpu_owner in (xz, \"gz*\")", Some("gzip")),
        Some(true)
    );
    assert_eq!(truth("cpu_owner == *", Some("gzip")), Some(true));
    // No name matches if there is no owner.
    assert_eq!(truth("cpu_owner == *", Some("")), Some(false));
    assert_eq!(truth("cpu_owner != gzip", Some("")), Some(true));
    assert_eq!(truth("cpu_owner == gzip", None), None);
    assert_eq!(truth("!(cpu_owner == gzip)", None), None);
    let decided = "cpu_owner == gzip && throttled > 2ms";
    assert_eq!(truth(decided, None), Some(false));
    assert_eq!(
        truth("throttled >= 2ms || cpu_owner == x", None),
        Some(true)
    );
    assert!(error("cpu_owner > gzip").contains("names have no order"));
    assert!(error("cpu_owner").contains("compared with nothing"));
}

#[test]
fn what_is_not_known_decides_nothing() {
    let mut record = Made::default().slept("page read", "disk");
    record.sites.push(None);
    record.numbers[Number::Irq as usize] = None;
    let truth = |text: &str| {
        let predicate = Predicate::parse(text).expect(text);
        let truth = predicate.truth(&record);
        let program = predicate.compile().expect(text);
        assert_eq!(program.truth(&record), truth, "{text}");
        truth
    };
    assert_eq!(truth("label == \"page read\""), Some(true));
    assert_eq!(truth("label == epoll"), None);
    assert_eq!(truth("label != epoll"), None);
    assert_eq!(truth("irq > 1ms"), None);
    assert_eq!(truth("!(irq > 1ms)"), None);
    assert_eq!(truth("irq > 1ms && syscall == read"), Some(false));
    assert_eq!(truth("irq > 1ms || syscall == openat"), Some(true));
}

#[test]
fn pieces_of_restarted_calls_have_no_error() {
    let mut record = Made::default().with(Number::Ret, -512);
    record.restarted = true;
    assert_eq!(error_of(&record), Some(0));
    assert!(holds("restarted && error == none && ret == -512", &record));
}

#[test]
fn arguments_are_words() {
    let record = Made::default().with(Number::Arg0, i128::from(u64::MAX));
    assert!(holds("arg0 == -1", &record));
    assert!(holds("arg0 == 0xffffffffffffffff && arg0 > 5", &record));
}

#[test]
fn times_are_exact() {
    for (text, wanted) in [
        ("200us", 200_000),
        ("1.5ms", 1_500_000),
        ("2s", 2_000_000_000),
        ("0", 0),
        ("17", 17),
        ("0.000001ms", 1),
        ("1min", 60_000_000_000),
    ] {
        assert_eq!(values::parse_time(text), Ok(wanted), "{text}");
        assert_eq!(values::parse_time(&values::print_time(wanted)), Ok(wanted));
    }
    for bad in [
        "1.5",
        "1h",
        "-1ms",
        "1..5ms",
        ".5ms",
        "1.ms",
        "0.1ns",
        "ms",
        "99999999999s",
    ] {
        assert!(values::parse_time(bad).is_err(), "{bad}");
    }
}

#[test]
fn errors_show_the_place_and_what_was_meant() {
    assert_eq!(
        error("syscall == openat && bloked > 1ms"),
        "there is no field `bloked`\n\
         \x20 syscall == openat && bloked > 1ms\n\
         \x20                      ^^^^^^\n\
         Did you mean `blocked`?"
    );
    for (text, wanted) in [
        ("syscall == opennat", "Did you mean `openat`?"),
        (
            "syscall == frobnicate",
            "there is no system call `frobnicate`",
        ),
        ("syscall == frob*", "no system call matches `frob*`"),
        ("label == epol", "Did you mean `epoll`?"),
        ("label == pipe_empty", "Did you mean \"pipe empty\"?"),
        (
            "label == page read",
            "Put names with spaces in double quotes.",
        ),
        ("class == discs", "The classes are idle, disk,"),
        ("error == ENOET", "Did you mean `ENOENT`?"),
        ("error == ERESTARTSYS", "Write `restarted`"),
        ("ret == ENOENT", "write `error == ENOENT`"),
        ("blocked = 1ms", "write `==`"),
        ("blocked > 1ms and restarted", "write `&&`"),
        ("blocked > 1ms | restarted", "write `||`"),
        ("blocked > 1.5", "`1.5` needs a unit"),
        ("blocked > 1parsec", "`parsec` is not a unit of time"),
        ("sleeps > 1ms", "`sleeps` is not a time"),
        ("sleeps > many", "`many` is not a number"),
        ("sleeps > -1", "`sleeps` is never -1"),
        ("syscall > read", "names have no order"),
        ("blocked", "Write it as in `blocked > 1ms`"),
        ("restarted == 1", "`restarted` stands alone"),
        ("blocked >", "ends where a value should be"),
        ("(blocked > 1ms", "ends where `&&`, `||` or `)` should be"),
        ("blocked > 1ms)", "expected `&&`, `||` or the end"),
        ("blocked > 1ms &&", "ends where a field"),
        ("syscall in read", "expected `(`, as in `in (a, b)`"),
        ("syscall in (read", "ends where `,` or `)` should be"),
        ("syscall in ()", "expected a value"),
        ("comm == \"a", "ends where `\"` at the end"),
        ("comm == \"\"", "a name is empty"),
        ("comm == a_name_that_is_too_long", "15 bytes at most"),
        ("", "the predicate is empty"),
        ("&& restarted", "expected a field"),
    ] {
        let error = error(text);
        assert!(error.contains(wanted), "`{text}` gives:\n{error}");
    }
}

#[test]
fn no_text_is_too_deep() {
    for text in ["(".repeat(4000), "!".repeat(4000), "(!".repeat(2000)] {
        assert!(Predicate::parse(&text).is_err());
    }
    let wide = vec!["restarted"; 300].join("||");
    assert!(Predicate::parse(&wide).is_ok());
    assert!(Predicate::parse(&wide.repeat(10)).is_err());
}

#[test]
fn what_is_too_much_for_the_probes_is_said() {
    let compile = |text: &str| {
        let predicate = Predicate::parse(text).expect(text);
        predicate
            .compile()
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let long = |tests: usize| vec!["wall > 1ms"; tests].join(" || ");
    assert_eq!(compile(&long(16)), Ok(()));
    assert!(compile(&long(17)).is_err_and(|error| error.contains("33 instructions")));
    assert!(compile("comm == \"*name\"").is_err_and(|error| error.contains("beginning")));
    let calls = ["read", "write", "open", "close", "stat"].map(|name| format!("syscall == {name}"));
    assert!(compile(&calls.join(" || ")).is_err());
    assert_eq!(
        compile("syscall in (read, write, open, close, stat)"),
        Ok(())
    );
}

#[test]
fn its_layout_is_that_of_the_probes() {
    assert_eq!(size_of::<Instruction>(), 16);
    assert_eq!(size_of::<Code>(), 8 + 32 * 16 + 4 * 136 + 4 * 32);
    for (number, field) in Number::ALL.into_iter().enumerate() {
        assert_eq!(field as usize, number);
    }
}

#[test]
fn a_predicate_says_what_it_uses() {
    let predicate = Predicate::parse("irq > 0 || label == epoll").expect("a predicate");
    assert!(predicate.uses(Field::Number(Number::Irq)));
    assert!(predicate.uses(Field::Label));
    assert!(!predicate.uses(Field::Class));
    assert!(!predicate.names_user_time());
    let user = Predicate::parse("syscall in (read, (user))").expect("a predicate");
    assert!(user.names_user_time());
}

const NAMES: [&str; 9] = [
    "read",
    "open*",
    "*at",
    "*",
    "readv",
    "(user)",
    "read (ia32)",
    "*stat*x*",
    "syscall_*",
];
const LABELS: [&str; 6] = ["epoll", "page read", "page *", "*lock*", "do_a_thing", "*"];
const CLASSES: [&str; 4] = ["disk", "idle", "*l*", "lock"];
const COMMS: [&str; 5] = ["a", "worker*", "say \"hi\"", "back\\slash", "*"];

fn some<T: Clone + std::fmt::Debug + 'static>(
    values: Vec<T>,
) -> impl Strategy<Value = (Operator, Vec<T>)> {
    let one = prop::sample::select(values);
    let list = prop::collection::vec(one.clone(), 1..4);
    prop_oneof![
        one.clone().prop_map(|value| (Operator::Equal, vec![value])),
        one.prop_map(|value| (Operator::NotEqual, vec![value])),
        list.prop_map(|values| (Operator::In, values)),
    ]
}

fn globs(names: &'static [&'static str]) -> impl Strategy<Value = (Operator, Vec<Glob>)> {
    some(names.iter().map(|name| Glob::new(name)).collect())
}

fn numbers(field: Number) -> Vec<i128> {
    use super::fields::Kind;
    match field.kind() {
        Kind::Signed => vec![
            0,
            -1,
            -2,
            -11,
            -512,
            i128::from(i64::MIN),
            i128::from(i64::MAX),
        ],
        _ => vec![
            0,
            1,
            2,
            1_000,
            1_500_000,
            60_000_000_000,
            i128::from(u64::MAX),
        ],
    }
}

fn number_tests() -> impl Strategy<Value = Test> {
    let field = prop::sample::select(Number::ALL.to_vec());
    let orders = prop::sample::select(vec![
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
    ]);
    (field, orders).prop_flat_map(|(field, order)| {
        let ordered =
            prop::sample::select(numbers(field)).prop_map(move |value| (order, vec![value]));
        prop_oneof![ordered, some(numbers(field))].prop_map(move |(operator, values)| {
            Test::Number {
                field,
                operator,
                values,
            }
        })
    })
}

fn tests() -> impl Strategy<Value = Test> {
    prop_oneof![
        4 => number_tests(),
        2 => globs(&NAMES).prop_map(|(operator, names)| {
            let calls = CallSet::new(names);
            Test::Call { operator, calls }
        }),
        1 => some(vec![0, 2, 11, 38]).prop_map(|(operator, values)| Test::Error { operator, values }),
        1 => globs(&COMMS).prop_map(|(operator, names)| Test::Comm { operator, names }),
        1 => globs(&COMMS).prop_map(|(operator, names)| Test::CpuOwner { operator, names }),
        1 => globs(&LABELS).prop_map(|(operator, names)| {
            let at = SiteTest::label(names);
            Test::Slept { operator, at }
        }),
        1 => globs(&CLASSES).prop_map(|(operator, names)| {
            let at = SiteTest::class(names);
            Test::Slept { operator, at }
        }),
        1 => Just(Test::Restarted),
    ]
}

fn predicates() -> impl Strategy<Value = Predicate> {
    let leaf = tests().prop_map(Expression::Test);
    let tree = leaf.prop_recursive(5, 24, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(Expression::negated),
            pair.clone()
                .prop_map(|(left, right)| Expression::And(Box::new(left), Box::new(right))),
            pair.prop_map(|(left, right)| Expression::Or(Box::new(left), Box::new(right))),
        ]
    });
    tree.prop_map(|expression| Predicate { expression })
}

fn records() -> impl Strategy<Value = Made> {
    let number = |field: Number| prop::option::weighted(0.9, prop::sample::select(numbers(field)));
    let numbers: Vec<_> = Number::ALL.into_iter().map(number).collect();
    let call = prop::sample::select(vec![0, 2, 19, 257, 5, 0x10003, 0xffff, 0xff_ffff, 0x1ffff]);
    let comm = prop::sample::select(vec!["a", "worker/1", "say \"hi\"", "back\\slash", "b"]);
    let site = (
        prop::sample::select(vec!["epoll", "page read", "inode lock", "do_a_thing"]),
        prop::sample::select(vec!["disk", "idle", "lock"]),
    );
    let site = site.prop_map(|(label, class)| (label.to_string(), class.to_string()));
    let sites = prop::collection::vec(prop::option::weighted(0.8, site), 0..4);
    let owner = prop::sample::select(vec![None, Some(""), Some("a"), Some("worker/1")]);
    (call, numbers, any::<bool>(), comm, owner, sites).prop_map(
        |(call, numbers, restarted, comm, owner, sites)| Made {
            call,
            numbers,
            restarted,
            comm: comm.to_string(),
            cpu_owner: owner.map(str::to_string),
            sites,
        },
    )
}

/// A naive matcher that tries every position.
fn naive_glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            naive_glob(rest, name) || (!name.is_empty() && naive_glob(pattern, &name[1..]))
        }
        (Some((a, pattern)), Some((b, name))) => a == b && naive_glob(pattern, name),
        _ => false,
    }
}

/// A two-valued evaluator, for records without unknown values.
fn naive(expression: &Expression, record: &Made) -> bool {
    let globs = |names: &[Glob], name: &str| {
        let matches = |glob: &Glob| naive_glob(glob.pattern().as_bytes(), name.as_bytes());
        names.iter().any(matches)
    };
    let sign = |operator: Operator, equals: bool| (operator == Operator::NotEqual) != equals;
    match expression {
        Expression::Not(inner) => !naive(inner, record),
        Expression::And(left, right) => naive(left, record) & naive(right, record),
        Expression::Or(left, right) => naive(left, record) | naive(right, record),
        Expression::Test(Test::Restarted) => record.restarted,
        Expression::Test(Test::Call { operator, calls }) => {
            sign(*operator, globs(&calls.names, &calls::name(record.call)))
        }
        Expression::Test(Test::Comm { operator, names }) => {
            sign(*operator, globs(names, &record.comm))
        }
        Expression::Test(Test::CpuOwner { operator, names }) => {
            let owner = record.cpu_owner.as_deref().unwrap_or_default();
            sign(*operator, !owner.is_empty() && globs(names, owner))
        }
        Expression::Test(Test::Slept { operator, at }) => {
            let names = record.sites.iter().flatten().map(|(label, class)| {
                if at.field() == Field::Label {
                    label
                } else {
                    class
                }
            });
            let slept = names.filter(|name| globs(at.globs(), name)).count();
            sign(*operator, slept > 0)
        }
        Expression::Test(Test::Error { operator, values }) => {
            let ret = record.numbers[Number::Ret as usize].unwrap_or_default();
            let error = match ret {
                -4095..=-1 if !record.restarted => -ret,
                _ => 0,
            };
            sign(
                *operator,
                values.iter().any(|value| i128::from(*value) == error),
            )
        }
        Expression::Test(Test::Number {
            field,
            operator,
            values,
        }) => {
            let number = record.numbers[*field as usize].unwrap_or_default();
            values.iter().any(|value| match operator {
                Operator::Equal | Operator::In => number == *value,
                Operator::NotEqual => number != *value,
                Operator::Less => number < *value,
                Operator::LessOrEqual => number <= *value,
                Operator::Greater => number > *value,
                Operator::GreaterOrEqual => number >= *value,
            })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_printed_reads_as_the_same(predicate in predicates()) {
        let text = predicate.to_string();
        // Printed predicates may be longer than a text may be.
        if text.len() <= TEXT_MAX {
            prop_assert_eq!(Predicate::parse(&text).map_err(|error| error.to_string()), Ok(predicate));
        }
    }

    #[test]
    fn the_evaluator_agrees_with_a_naive_one(predicate in predicates(), mut record in records()) {
        let truth = predicate.truth(&record);
        record.numbers.iter_mut().for_each(|number| *number = Some(number.unwrap_or(1)));
        record.sites.iter_mut().for_each(|site| {
            *site = Some(site.clone().unwrap_or(("epoll".to_string(), "idle".to_string())));
        });
        record.cpu_owner.get_or_insert_default();
        let naive = naive(&predicate.expression, &record);
        prop_assert_eq!(predicate.truth(&record), Some(naive));
        // A decision made with unknown values must not change once they are known.
        prop_assert!(truth.is_none_or(|truth| truth == naive));
    }

    #[test]
    fn the_program_agrees_with_the_evaluator(predicate in predicates(), record in records()) {
        if let Ok(program) = predicate.compile() {
            prop_assert_eq!(program.truth(&record), predicate.truth(&record));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        crate::outside::predicate(&text);
    }

    #[test]
    fn texts_of_its_own_words_are_read_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "blocked", "syscall", "label", "cpu_owner", "throttled", "restarted", "==", "!=", ">", "in", "(", ")", ",",
                "&&", "||", "!", "1ms", "read", "\"page read\"", "epoll", "\"", "(user)", "-2",
            ]),
            0..20,
        )
    ) {
        crate::outside::predicate(&words.join(" "));
        crate::outside::predicate(&words.concat());
    }
}
