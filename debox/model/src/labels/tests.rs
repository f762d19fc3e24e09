//! Tests the rules on their examples and on stacks of real sleeps.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A sleep with a known stack: the call, the stack, and its explanation.
struct Known {
    call: &'static str,
    /// Innermost first, separated by spaces; without the two frames that all sleeps begin with.
    stack: &'static str,
    site: &'static str,
    label: &'static str,
    class: Class,
}

const fn known(
    call: &'static str,
    stack: &'static str,
    site: &'static str,
    label: &'static str,
    class: Class,
) -> Known {
    Known {
        call,
        stack,
        site,
        label,
        class,
    }
}

include!("real_stacks.rs");

fn explain(call: &str, stack: &str) -> (Option<String>, String, Class) {
    let frames: Vec<&str> = stack.split_whitespace().collect();
    let explained = Labels::builtin().explain(call, None, &frames);
    let site = explained.site_index.map(|index| frames[index].to_string());
    (site, explained.label, explained.class)
}

fn error(text: &str) -> String {
    format!("{:#}", Labels::parse(&[("bad.toml", text)]).unwrap_err())
}

#[test]
fn real_sleeps_are_explained() {
    for known in REAL {
        let found = explain(known.call, &format!("__schedule schedule {}", known.stack));
        let wanted = (
            Some(known.site.to_string()),
            known.label.to_string(),
            known.class,
        );
        assert_eq!(found, wanted, "for {}: {}", known.call, known.stack);
    }
}

/// The stack of a task that is not running comes without the functions that the kernel keeps in its
/// scheduler's section. This is the part of that section that occurs in the stacks here.
const HIDDEN: &[&str] = &[
    "__schedule",
    "schedule*",
    "io_schedule*",
    "do_nanosleep",
    "rt_mutex_slowlock*",
    "rt_mutex_wait_proxy_lock",
    "__mutex_lock*",
    "rwsem_down_*",
    "down_*",
    "percpu_down_write",
    "__percpu_down_read",
    "wait_for_completion*",
    "__wait_for_common",
    "bit_wait*",
    "__wait_on_bit*",
    "out_of_line_wait_on_bit*",
];

#[test]
fn real_sleeps_are_explained_without_their_primitives() {
    let hidden = HIDDEN
        .iter()
        .map(|text| glob::Glob::try_from(text.to_string()).unwrap());
    let hidden: Vec<glob::Glob> = hidden.collect();
    for known in REAL {
        let shown = |name: &&str| !hidden.iter().any(|glob| glob.matches(name));
        let stack: Vec<&str> = known.stack.split_whitespace().filter(shown).collect();
        let (_, label, class) = explain(known.call, &stack.join(" "));
        assert_eq!(
            (&*label, class),
            (known.label, known.class),
            "{}: {stack:?}",
            known.call
        );
    }
}

#[test]
fn each_rule_explains_its_own_example() {
    let labels = Labels::builtin();
    for (number, rule) in labels.rules.iter().enumerate() {
        assert!(
            !rule.example.is_empty(),
            "the rule of {} has no example",
            rule.label
        );
        let names: Vec<&str> = rule.example.iter().map(|frame| function(frame)).collect();
        let site_index = labels.site_index(&names).unwrap();
        let sleep = Sleep {
            syscall: rule.example_call.as_deref().unwrap_or("(user)"),
            args: rule.example_args,
            names: &names,
            site_index,
        };
        let first = labels.rule(&sleep);
        assert_eq!(
            first,
            Some(number),
            "the example of rule {number} ({}), {names:?}, is taken by {:?}",
            rule.label,
            first.map(|first| &labels.rules[first].label),
        );
    }
}

#[test]
fn no_rule_is_there_twice() {
    let mut seen = BTreeSet::new();
    for rule in &Labels::builtin().rules {
        let conditions = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?}",
            rule.site, rule.within, rule.within_all, rule.wait, rule.calls, rule.args
        );
        assert!(
            seen.insert(conditions),
            "a rule of {} is there twice",
            rule.label
        );
    }
}

#[test]
fn no_site_of_a_rule_is_a_primitive() {
    let labels = Labels::builtin();
    for rule in &labels.rules {
        let named = rule.site.iter().map(|glob| format!("{glob:?}"));
        for name in named.filter(|name| !name.contains('*')) {
            let name = name.trim_start_matches("Glob(\"").trim_end_matches("\")");
            let primitive = labels.primitives.iter().any(|glob| glob.matches(name));
            assert!(
                !primitive,
                "{name}, a site of {}, is a primitive",
                rule.label
            );
        }
    }
}

#[test]
fn every_class_is_used() {
    let used: BTreeSet<Class> = Labels::builtin()
        .rules
        .iter()
        .map(|rule| rule.class)
        .collect();
    assert_eq!(used, BTreeSet::from(Class::ALL));
}

#[test]
fn an_unknown_site_shows_its_function() {
    let found = explain(
        "ioctl",
        "__schedule schedule frobnicate.isra.0 frob_ioctl do_syscall_64",
    );
    assert_eq!(
        found,
        (
            Some("frobnicate.isra.0".into()),
            "frobnicate".into(),
            Class::Other
        )
    );
}

#[test]
fn an_unknown_site_on_a_lock_has_class_lock() {
    let found = explain(
        "ioctl",
        "__schedule schedule __mutex_lock.constprop.0 frob_ioctl",
    );
    assert_eq!(
        found,
        (Some("frob_ioctl".into()), "frob_ioctl".into(), Class::Lock)
    );
}

#[test]
fn an_empty_stack_is_unknown() {
    assert_eq!(explain("read", ""), (None, "unknown".into(), Class::Other));
}

#[test]
fn a_stack_of_primitives_has_its_outermost_frame_as_site() {
    let found = explain("read", "__schedule schedule schedule_timeout");
    assert_eq!(
        found,
        (
            Some("schedule_timeout".into()),
            "schedule_timeout".into(),
            Class::Other
        )
    );
}

#[test]
fn suffixes_and_offsets_are_ignored() {
    for frame in [
        "ext4_find_entry",
        "ext4_find_entry.constprop.0",
        "ext4_find_entry.isra.0.cold",
        "ext4_find_entry+0x1f/0x200",
        "ext4_find_entry [ext4]",
        " ext4_find_entry",
    ] {
        assert_eq!(function(frame), "ext4_find_entry", "of {frame:?}");
    }
    assert_eq!(function(".text"), ".text");
    assert_eq!(function(""), "");
}

#[test]
fn arguments_decide_when_they_are_known() {
    let frames = [
        "__schedule",
        "schedule",
        "fcntl_setlk",
        "do_fcntl",
        "__x64_sys_fcntl",
    ];
    let label = |args| Labels::builtin().explain("fcntl", args, &frames).label;
    assert_eq!(label(Some([3, 38, 0])), "open file description lock");
    assert_eq!(label(Some([3, 7, 0])), "POSIX file lock");
    assert_eq!(label(None), "POSIX file lock");
}

#[test]
fn the_first_rule_that_matches_wins() {
    let rule = |label: &str| {
        format!("[[rule]]\nlabel = \"{label}\"\nclass = \"disk\"\nsite = [\"frob\"]\n")
    };
    let (first, second) = (rule("first") + &rule("shadowed"), rule("second"));
    let labels = Labels::parse(&[("1.toml", &first), ("2.toml", &second)]).unwrap();
    assert_eq!(labels.explain("read", None, &["frob"]).label, "first");
    let labels = Labels::parse(&[("2.toml", &second), ("1.toml", &first)]).unwrap();
    assert_eq!(labels.explain("read", None, &["frob"]).label, "second");
}

#[test]
fn every_condition_must_hold() {
    let text = r#"
        primitives = ["sleep_on", "doze"]
        [[rule]]
        label = "all of {site}"
        class = "lock"
        site = ["a"]
        within = ["nowhere", "c*"]
        within_all = ["a", "b"]
        wait = ["sleep_*"]
        calls = ["read", "p*"]
        args = { index = 1, mask = 0x0f, values = [6] }
    "#;
    let labels = Labels::parse(&[("all.toml", text)]).unwrap();
    let matches =
        |call: &str, args, frames: &[&str]| labels.explain(call, args, frames).label == "all of a";
    let (args, frames) = (Some([0, 0x86, 0]), ["sleep_on", "a", "b", "cc"]);
    assert!(matches("read", args, &frames));
    assert!(matches("pread64", args, &frames));
    assert!(!matches("write", args, &frames));
    assert!(!matches("read", None, &frames));
    assert!(!matches("read", Some([0, 7, 0]), &frames));
    assert!(!matches("read", args, &["doze", "a", "b", "cc"]));
    assert!(!matches("read", args, &["sleep_on", "a", "cc"]));
    assert!(!matches("read", args, &["sleep_on", "a", "b"]));
    assert!(!matches("read", args, &["sleep_on", "b", "a", "cc"]));
}

#[test]
fn hidden_primitives_are_taken_to_be_what_the_rules_say() {
    let text = r#"
        primitives = ["lock_slow"]
        [[rule]]
        label = "lock of a"
        class = "lock"
        site = ["a"]
        wait = ["lock_slow"]
        [[rule]]
        label = "some lock"
        class = "lock"
        wait = ["lock_slow"]
        [[rule]]
        label = "lock of b"
        class = "lock"
        site = ["b"]
        wait = ["lock_slow"]
        [[rule]]
        label = "data of b"
        class = "disk"
        site = ["b"]
    "#;
    let labels = Labels::parse(&[("hidden.toml", text)]).unwrap();
    let label = |frames: &[&str]| labels.explain("read", None, frames).label;
    assert_eq!(label(&["lock_slow", "a"]), "lock of a");
    assert_eq!(label(&["a"]), "lock of a");
    assert_eq!(label(&["lock_slow", "b"]), "some lock");
    assert_eq!(label(&["b"]), "data of b");
    assert_eq!(label(&["c"]), "c");
}

#[test]
fn a_bad_rule_is_named() {
    let good = "[[rule]]\nlabel = \"x\"\nclass = \"disk\"\nsite = [\"y\"]\n";
    for (bad, complaint) in [
        (
            "label = \"b\"\nclass = \"disk\"",
            "it would match every sleep",
        ),
        (
            "label = \"b\"\nclass = \"disc\"\nsite = [\"y\"]",
            "unknown variant `disc`",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\nsites = [\"y\"]",
            "unknown field `sites`",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\nsite = [\"\"]",
            "`` is not a pattern",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\ncalls = [\"c\"]\nargs = { index = 3, values = [0] }",
            "args.index is 3",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\ncalls = [\"c\"]\nargs = { index = 1, values = [] }",
            "args.values is empty",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\ncalls = [\"c\"]\nargs = { index = 1, mask = 1, values = [2] }",
            "args.values has 0x2",
        ),
        (
            "label = \"b\"\nclass = \"disk\"\nargs = { index = 1, values = [2] }",
            "args without `calls`",
        ),
        ("label = \" b\"\nsite = [\"y\"]", "missing field `class`"),
    ] {
        let error = error(&format!("{good}[[rule]]\n{bad}\n"));
        assert!(error.starts_with("bad.toml: rule 2 ("), "{error}");
        assert!(
            error.contains("b): ") && error.contains(complaint),
            "{error}"
        );
    }
    let unnamed = error("[[rule]]\nlabel = \"\"\nclass = \"disk\"\nsite = [\"y\"]\n");
    assert_eq!(unnamed, "bad.toml: rule 1 (): the label is empty");
}

#[test]
fn a_file_that_holds_no_rules_is_named() {
    assert!(error("[[rule]\n").starts_with("bad.toml is not a rule file: "));
    assert!(error("rules = 3").contains("unknown field `rules`"));
}

#[test]
fn stars_stand_for_any_characters() {
    let matches = |pattern: &str, name| {
        glob::Glob::try_from(pattern.to_string())
            .unwrap()
            .matches(name)
    };
    for (pattern, name) in [
        ("*", ""),
        ("*", "a"),
        ("a*", "a"),
        ("a*", "ab"),
        ("*b", "ab"),
        ("a*c*e", "abcde"),
        ("a**b", "ab"),
    ] {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [
        ("a", "ab"),
        ("a", "ba"),
        ("a*", "ba"),
        ("*b", "ba"),
        ("ab*ba", "aba"),
        ("a*c*e", "aec"),
        ("a*b*", "a"),
    ] {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn classes_are_written_in_one_way() {
    for class in Class::ALL {
        let written = toml::Value::try_from(class).unwrap();
        assert_eq!(written.as_str(), Some(class.as_str()));
        assert_eq!(format!("{class:>8}").trim(), class.as_str());
    }
}

/// Frames that the rules know, and unknown frames.
fn any_frame() -> impl Strategy<Value = String> {
    let known: Vec<String> = Labels::builtin()
        .rules
        .iter()
        .flat_map(|rule| rule.example.clone())
        .collect();
    prop_oneof![
        prop::sample::select(known),
        "\\PC{0,12}",
        "[a-z_.*+ ]{0,12}"
    ]
}

proptest! {
    #[test]
    fn any_stack_is_explained(
        call in "\\PC{0,8}",
        args in any::<Option<[u64; 3]>>(),
        frames in prop::collection::vec(any_frame(), 0..40),
    ) {
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let explained = Labels::builtin().explain(&call, args, &frames);
        prop_assert_eq!(explained.site_index.is_none(), frames.is_empty());
        prop_assert!(explained.site_index.is_none_or(|index| index < frames.len()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Labels::parse(&[("any.toml", &text)]);
    }
}

#[test]
fn what_rules_look_at_is_known_by_call() {
    let labels = Labels::builtin();
    assert_eq!(labels.arg_masks("fcntl"), [0, u64::MAX, 0]);
    assert_eq!(labels.arg_masks("read"), [0; 3]);
    let rule = |call: &str, mask: u64| {
        format!(
            "[[rule]]\nlabel = \"x\"\nclass = \"disk\"\ncalls = [\"{call}\"]\n\
             args = {{ index = 2, mask = {mask}, values = [0] }}\n"
        )
    };
    let text = rule("a*", 1) + &rule("ab", 6) + &rule("b", 8);
    let labels = Labels::parse(&[("x", &text)]).unwrap();
    assert_eq!(labels.arg_masks("ab"), [0, 0, 7]);
}
