// SPDX-License-Identifier: MIT OR Apache-2.0

use super::super::rows::Share;
use super::*;

fn view() -> View {
    View::new(Choice {
        by: By::Process,
        sort: SortBy::Wait,
        filter: None,
        with_idle: false,
        within: Vec::new(),
    })
}

fn row(pid: u32, tid: Option<u32>) -> Row {
    Row {
        key: tid.unwrap_or(pid).to_string().into(),
        name: "a".to_string(),
        pid: Some(pid),
        tid,
        ..Row::default()
    }
}

fn press(view: &mut View, rows: &[Row], keys: &str) -> Action {
    let mut last = Action::Nothing;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '<' => KeyCode::Esc,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            key => KeyCode::Char(key),
        };
        last = view.press(KeyEvent::from(code), rows);
    }
    last
}

#[test]
fn from_a_process_to_its_threads_to_a_thread_and_back() {
    let mut view = view();
    let processes = [row(7, None), row(8, None)];
    assert_eq!(press(&mut view, &processes, "v\n"), Action::Nothing);
    assert_eq!(view.choice.by, By::Thread);
    assert_eq!(view.place(), "by thread, in process 8");
    assert_eq!(
        press(&mut view, &[row(8, Some(9))], "\n"),
        Action::OpenThread(9)
    );
    view.page = Page::Thread;
    assert_eq!(press(&mut view, &[], "<"), Action::CloseThread);
    press(&mut view, &[], "<");
    assert_eq!(
        (view.choice.by, view.selected_at(&processes)),
        (By::Process, 1)
    );
    press(&mut view, &[], "<<<");
    assert!(view.choice.within.is_empty());
}

/// The table is sorted again after its first row was read, and before Enter is pressed.
#[test]
fn enter_opens_the_row_that_was_first_when_it_was_read() {
    let mut view = view();
    let (now, later) = (Instant::now(), Instant::now() + READING * 2);
    let read = [row(1, None), row(2, None)];
    let moved = [row(2, None), row(1, None)];
    view.settle(&read, now);
    view.settle(&moved, now);
    assert_eq!(view.selected, None, "no key was pressed yet");
    press(&mut view, &read, "p");
    view.settle(&read, now);
    view.settle(&moved, now);
    assert_eq!(view.selected_at(&moved), 1);
    // The row is gone: it is the first one again, and that one stays.
    let others = [row(3, None), row(2, None)];
    view.settle(&others, now);
    assert_eq!(view.selected.as_deref(), Some("3"));
    press(&mut view, &others, "s");
    assert_eq!(view.selected, None, "another order has another first row");
    view.settle(&moved, now);
    press(&mut view, &moved, "\n");
    assert_eq!(view.place(), "by thread, in process 2");
    view.settle(&others, later);
    assert_eq!(view.selected, None, "the table is not read any more");
    press(&mut view, &read, "<v");
    view.settle(&moved, later);
    assert_eq!(view.selected.as_deref(), Some("2"), "what was chosen stays");
}

#[test]
fn the_selection_follows_its_row() {
    let mut view = view();
    let rows = [row(1, None), row(2, None), row(3, None)];
    press(&mut view, &rows, "v");
    let moved = [row(2, None), row(1, None)];
    assert_eq!(view.selected_at(&moved), 0);
    press(&mut view, &moved, "vvvv");
    assert_eq!(view.selected_at(&moved), 1, "the last row is the end");
    assert_eq!(view.selected_at(&[]), 0);
    assert_eq!(press(&mut view, &[], "\nv^gR"), Action::Nothing);
}

#[test]
fn a_filter_is_typed_and_mistakes_are_shown() {
    let mut view = view();
    press(&mut view, &[], "/class == disc\n");
    assert!(view.message.is_some() && view.typed.is_some());
    press(&mut view, &[], "<");
    press(&mut view, &[], "/class == disk\n");
    assert_eq!(view.place(), "by process, where class == disk");
    press(&mut view, &[], "q".repeat(0).as_str());
    press(&mut view, &[], "<");
    assert!(view.choice.filter.is_none());
}

#[test]
fn the_holder_is_one_key_away() {
    let mut view = view();
    let mut held = row(7, None);
    held.held_by = vec![Share {
        what: "a/b/31".into(),
        kind: "owner".into(),
        ns: 1,
    }];
    assert_eq!(press(&mut view, &[held], "g"), Action::OpenThread(31));
}
