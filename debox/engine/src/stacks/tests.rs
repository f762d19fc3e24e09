//! Tests the walk and the tables with arbitrary registers, memory and files.

use std::io::Write;
use std::rc::Rc;

use gimli::{Encoding, Format};
use proptest::prelude::*;

use super::rule::{evaluate, FrameBase, Machine, Rule, Saved};
use super::tables::Tables;
use super::walk::{walk, At, Check, Code, End, Frame, Program, Registers, MAX_FRAMES};
use super::{path_of, Stacks};
use crate::process::{copy_of_vdso, Processes};

const ENCODING: Encoding = Encoding {
    format: Format::Dwarf32,
    version: 1,
    address_size: 8,
};
const CODE: u64 = 0x40_0000;

/// A program whose code is one page, with unrelated rules.
#[derive(Debug)]
struct Anything {
    rules: Vec<Option<Rc<Rule>>>,
}

impl Program for Anything {
    fn code(&mut self, address: u64) -> Code {
        if address.wrapping_sub(CODE) >= 4096 {
            return Code::None;
        }
        match &self.rules[address as usize % self.rules.len()] {
            Some(rule) => Code::Rule(Rc::clone(rule)),
            None => Code::NoRule,
        }
    }

    fn follows_call(&mut self, address: u64) -> bool {
        !address.is_multiple_of(3)
    }
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![(-4i64..64).prop_map(|words| words * 8), -4096i64..4096]
}

fn expression() -> impl Strategy<Value = Box<[u8]>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..24);
    // What compilers write: a register plus an offset, or the memory there.
    let usual = (0u8..17, 0u8..64, any::<bool>()).prop_map(|(register, offset, is_in_memory)| {
        let mut bytes = vec![0x70 + register, offset];
        bytes.extend(is_in_memory.then_some(0x06));
        bytes
    });
    prop_oneof![bytes, usual].prop_map(Vec::into_boxed_slice)
}

fn saved() -> impl Strategy<Value = Saved> {
    prop_oneof![
        Just(Saved::Undefined),
        Just(Saved::Same),
        offset().prop_map(Saved::At),
        offset().prop_map(Saved::Is),
        (0u16..20).prop_map(Saved::InRegister),
        expression().prop_map(Saved::AtExpression),
        expression().prop_map(Saved::IsExpression),
    ]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let base = prop_oneof![
        4 => (prop_oneof![Just(7u16), Just(6), 0u16..20], offset())
            .prop_map(|(register, offset)| FrameBase::Register(register, offset)),
        1 => expression().prop_map(FrameBase::Expression),
    ];
    let saved = proptest::collection::vec((0u16..17, saved()), 0..6);
    (base, saved, any::<bool>()).prop_map(|(base, mut saved, is_signal)| {
        saved.push((16, Saved::At(-8))); // otherwise most walks would end at once
        Rule {
            base,
            saved,
            is_signal,
            encoding: ENCODING,
        }
    })
}

fn program() -> impl Strategy<Value = Anything> {
    let rule = proptest::option::weighted(0.8, any_rule().prop_map(Rc::new));
    proptest::collection::vec(rule, 1..8).prop_map(|rules| Anything { rules })
}

/// A stack of code addresses, stack addresses (as distances), and noise.
fn words() -> impl Strategy<Value = Vec<(bool, u64)>> {
    let word = prop_oneof![
        (CODE..CODE + 4096).prop_map(|word| (false, word)),
        (0u64..512).prop_map(|word| (true, word * 8)),
        any::<u64>().prop_map(|word| (false, word)),
        Just((false, 0)),
    ];
    proptest::collection::vec(word, 0..256)
}

fn bytes_of(words: &[(bool, u64)], sp: u64) -> Vec<u8> {
    let word = |(moves, word): &(bool, u64)| if *moves { sp + word } else { *word };
    words.iter().flat_map(|w| word(w).to_le_bytes()).collect()
}

const SP: u64 = 0x7ffd_0000_0000;

fn registers(sp: u64, ip: u64, words: &[u64; 7]) -> Registers {
    Registers {
        ip,
        sp,
        bp: words[0],
        bx: words[1],
        di: words[2],
        high: [words[3], words[4], words[5], words[6]],
        interrupted: None,
    }
}

/// Writes the checked values into another stack. Returns false if two of them overlap.
fn satisfy(checks: &[Check], sp: u64, registers: &mut Registers, stack: &mut [u8]) -> bool {
    let mut written = vec![false; stack.len()];
    for check in checks {
        let value = if check.is_relative {
            check.value.wrapping_add(sp)
        } else {
            check.value
        };
        match check.at {
            At::FramePointer => registers.bp = value,
            At::StackPointer if value != sp => return false,
            At::StackPointer => {}
            At::Stack(at) => {
                let place = at as usize..at as usize + 8;
                let bytes = value.to_le_bytes();
                let differs = stack[place.clone()] != bytes;
                if written[place.clone()].contains(&true) && differs {
                    return false;
                }
                stack[place.clone()].copy_from_slice(&bytes);
                written[place].fill(true);
            }
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_walk_ends(
        mut program in program(), words in words(), others in any::<[u64; 7]>(),
        ip in CODE..CODE + 4096, sp in prop_oneof![Just(SP), any::<u64>()],
    ) {
        let stack = bytes_of(&words, SP);
        let found = walk(&registers(sp, ip, &others), &stack, &mut program);
        prop_assert!(!found.frames.is_empty() && found.frames.len() <= MAX_FRAMES);
    }

    /// The property that the probes rely on: if all checked words match, the frames are the same.
    #[test]
    fn the_checks_decide_the_frames(
        mut program in program(), words in words(), noise in words(),
        others in any::<[u64; 7]>(), noise_registers in any::<[u64; 7]>(),
        bp in proptest::option::of(0u64..512), ip in CODE..CODE + 4096, moved in 0u64..4,
    ) {
        let mut from = registers(SP, ip, &others);
        if let Some(bp) = bp {
            from.bp = SP + bp * 8;
        }
        let stack = bytes_of(&words, SP);
        let first = walk(&from, &stack, &mut program);
        let Some(checks) = &first.checks else { return Ok(()) };

        let sp = SP + moved * 2048;
        let mut other = bytes_of(&noise, sp);
        other.resize(stack.len(), 0x5a);
        let mut from = registers(sp, ip, &noise_registers);
        if !satisfy(checks, sp, &mut from, &mut other) {
            return Ok(());
        }
        let second = walk(&from, &other, &mut program);
        prop_assert_eq!(first.frames, second.frames);
        prop_assert_eq!(first.end, second.end);
    }

    #[test]
    fn expressions_end(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        struct Same;
        impl Machine for Same {
            fn register(&mut self, _: u16) -> Option<u64> {
                Some(7)
            }
            fn memory(&mut self, _: u64) -> Option<u64> {
                Some(7)
            }
        }
        let _ = evaluate(&bytes, ENCODING, Some(1), &mut Same);
    }
}

/// The caller's frame pointer may have been in a register that cannot be checked.
#[test]
fn another_register_is_not_taken_for_the_frame_pointer() {
    let rule = Rule {
        base: FrameBase::Register(6, 16),
        saved: vec![(6, Saved::InRegister(5)), (16, Saved::At(-8))],
        is_signal: false,
        encoding: ENCODING,
    };
    let mut program = Anything {
        rules: vec![Some(Rc::new(rule))],
    };
    let stack = bytes_of(&[(false, CODE + 8); 64], SP);
    // First the frame pointer, then its value for the caller, which is in rdi.
    let from = registers(SP, CODE + 8, &[SP, 0, SP + 64, 0, 0, 0, 0]);
    let found = walk(&from, &stack, &mut program);
    assert!(found.frames.len() > 2, "{found:?}");
    assert!(found.checks.is_none(), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn broken_files_are_read(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        length in any::<prop::sample::Index>(), is_cut in any::<bool>(),
    ) {
        let mut bytes = vdso();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len()));
        }
        let tables = tables_of(&bytes);
        for offset in (0..bytes.len() as u64 + 64).step_by(16) {
            let _ = tables.rule(offset);
        }
    }

    /// Messages from the ring buffer come from the probes; any bytes must be handled nevertheless.
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut stacks = Stacks::default();
        let _ = stacks.take(&bytes, &mut Processes::default());
    }
}

fn vdso() -> Vec<u8> {
    let file = copy_of_vdso().expect("the kernel maps one");
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).expect("it can be read");
    bytes
}

fn tables_of(bytes: &[u8]) -> Tables {
    let path = std::env::temp_dir().join(format!("debox-tables-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    let tables = Tables::read(&path);
    let _ = std::fs::remove_file(&path);
    tables
}

#[test]
fn the_kernels_own_code_has_rules() {
    let bytes = vdso();
    let tables = tables_of(&bytes);
    let known = (0..bytes.len() as u64).filter(|at| tables.rule(*at).is_some());
    assert!(known.count() > 500, "of {} bytes", bytes.len());
}

fn rule(base: FrameBase, saved: &[(u16, Saved)]) -> Option<Rc<Rule>> {
    let mut saved = saved.to_vec();
    saved.push((16, Saved::At(-8)));
    Some(Rc::new(Rule {
        base,
        saved,
        is_signal: false,
        encoding: ENCODING,
    }))
}

fn stack_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn frame(address: u64) -> Frame {
    Frame {
        address,
        is_return: true,
    }
}

/// A function that aligns its stack, as compiled by gcc: the address of its frame is in memory.
#[test]
fn a_function_that_aligns_its_stack() {
    let aligned = FrameBase::Expression(Box::new([0x76, 0x78, 0x06])); // *(rbp - 8)
    let mut program = Anything {
        rules: vec![
            rule(aligned, &[(6, Saved::AtExpression(Box::new([0x76, 0x00])))]),
            Some(Rc::new(Rule {
                base: FrameBase::Register(7, 8),
                saved: vec![(16, Saved::Undefined)],
                is_signal: false,
                encoding: ENCODING,
            })),
        ],
    };
    let stack = stack_of(&[0, SP + 48, 0, 0, 0, CODE + 2, 0, 0]);
    let mut from = registers(SP, CODE + 1, &[0; 7]);
    from.bp = SP + 16;
    let found = walk(&from, &stack, &mut program);
    assert_eq!(found.frames, [frame(CODE + 1), frame(CODE + 2)]);
    assert_eq!(found.end, End::Complete);
}

#[test]
fn what_is_not_in_the_copy_is_said() {
    let mut program = Anything {
        rules: vec![rule(FrameBase::Register(7, 16), &[])],
    };
    let stack = stack_of(&[0, CODE + 5, 0, CODE + 9, 0]);
    let found = walk(&registers(SP, CODE + 1, &[0; 7]), &stack, &mut program);
    assert_eq!(found.frames, [CODE + 1, CODE + 5, CODE + 9].map(frame));
    assert_eq!(found.end, End::TooDeep);
}

/// Such code has neither tables nor bytes; the remark gives the reason.
#[test]
fn code_of_a_file_that_was_not_to_be_had_is_said() {
    struct NoFile;
    impl Program for NoFile {
        fn code(&mut self, _: u64) -> Code {
            Code::NoFile(End::Gone)
        }
        fn follows_call(&mut self, _: u64) -> bool {
            false
        }
    }
    let stack = stack_of(&[SP + 16, CODE + 5, 0, CODE + 9, 0]);
    for bp in [SP, 7] {
        let mut from = registers(SP, CODE + 1, &[0; 7]);
        from.bp = bp;
        let found = walk(&from, &stack, &mut NoFile);
        assert_eq!(found.frames, [frame(CODE + 1)]);
        assert_eq!(found.end, End::Gone);
    }
}

#[test]
fn paths_come_from_their_ends() {
    assert_eq!(
        path_of(b"libx.so\0lib\0usr\0").to_str(),
        Some("/usr/lib/libx.so")
    );
    assert_eq!(path_of(b"").to_str(), Some("/"));
    // An invalid component must not lead anywhere else.
    assert_eq!(path_of(b"a\0..\0").to_str(), Some("/../a"));
}

/// At a fault, the instruction itself is looked up, and its function may not have set its frame
/// pointer yet.
#[test]
fn an_interrupted_function_is_no_caller() {
    let mut program = Anything {
        rules: vec![rule(FrameBase::Register(7, 16), &[]), None],
    };
    let stack = stack_of(&[0, CODE + 5, 0, CODE + 2, SP + 48, CODE + 2, 0]);
    let mut from = registers(SP, CODE + 2, &[0; 7]);
    from.interrupted = Some(0);
    let found = walk(&from, &stack, &mut program);
    let innermost = Frame {
        address: CODE + 2,
        is_return: false,
    };
    assert_eq!(found.frames[..2], [innermost, frame(CODE + 5)]);
    from.ip = CODE + 1; // an address without tables
    from.bp = SP + 32;
    let found = walk(&from, &stack, &mut program);
    assert_eq!(found.frames.len(), 1);
    assert_eq!(found.end, End::NoTables);
}

/// Python's trampolines have no tables: with padding on the stack, and with a frame pointer.
#[test]
fn a_trampoline_of_python_leads_to_its_caller() {
    struct Trampolines;
    impl Program for Trampolines {
        fn code(&mut self, address: u64) -> Code {
            if address == CODE + 9 {
                return Code::PythonTrampoline;
            }
            let saved = vec![(16, Saved::At(-8))];
            Code::Rule(Rc::new(Rule {
                base: FrameBase::Register(7, 16),
                saved,
                is_signal: false,
                encoding: ENCODING,
            }))
        }
        fn follows_call(&mut self, address: u64) -> bool {
            address == CODE + 0x20
        }
    }
    let addresses = [CODE + 1, CODE + 10, CODE + 0x20];
    for (word, bp) in [(7, SP + 64), (SP + 64, SP + 16)] {
        let stack = stack_of(&[0, CODE + 10, word, CODE + 0x20, 0, 0]);
        let mut from = registers(SP, CODE + 1, &[0; 7]);
        from.bp = bp;
        let found = walk(&from, &stack, &mut Trampolines);
        assert_eq!(found.frames, addresses.map(frame));
        assert_eq!(found.end, End::Complete);
        // What is above is no return address: it is no such trampoline.
        let stack = stack_of(&[0, CODE + 10, word, CODE + 0x21, 0, 0]);
        let found = walk(&from, &stack, &mut Trampolines);
        assert_eq!(found.frames, addresses.map(frame)[..2]);
        assert_eq!(found.end, End::NoTables);
    }
}
