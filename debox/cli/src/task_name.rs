// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks as text.

/// The task's name and number: `nginx/4711`. A broker gives another user's task no number: only the name, which says that.
pub fn task_name(comm: &str, tid: u32) -> String {
    match tid {
        0 => comm.to_string(),
        _ => format!("{comm}/{tid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_a_number_has_a_name_only() {
        assert_eq!(task_name("nginx", 4711), "nginx/4711");
        assert_eq!(task_name("(another user)", 0), "(another user)");
    }
}
