//! Finds the process that listens on a port, using /proc.

use std::fs;

/// Name and number of a process that listens on this port and is not in the process group. `None` if no
/// such process is visible.
pub fn of_others(port: u16, group: u32) -> Option<String> {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let holders: Vec<(u32, String, u32)> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| holds(*pid, &sockets))
        .filter_map(|pid| {
            let (name, group) =
                name_and_group(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
            Some((pid, name, group))
        })
        .collect();
    // Workers inherit the socket; the process that opened it may have ended.
    if holders.iter().any(|(_, _, its)| *its == group) {
        return None;
    }
    let (pid, name, _) = holders.first()?;
    Some(format!("{name} (process {pid})"))
}

/// Inodes of the sockets that listen on a port, from a table such as /proc/net/tcp.
fn listening(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let fits = words.get(1)?.ends_with(&port) && *words.get(3)? == LISTEN;
            fits.then(|| words.get(9)?.parse().ok()).flatten()
        })
        .collect()
}

fn holds(pid: u32, sockets: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.any(|descriptor| {
        fs::read_link(descriptor.path()).is_ok_and(|to| {
            sockets
                .iter()
                .any(|socket| to.as_os_str() == socket.as_str())
        })
    })
}

/// Parses a line of /proc/PID/stat.
fn name_and_group(stat: &str) -> Option<(String, u32)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once('(')?.1;
    Some((name.to_string(), after.split(' ').nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_is_found_with_its_group() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, own) = name_and_group(&stat).unwrap();
        assert_eq!(of_others(port, own), None);
        let other = of_others(port, own.wrapping_add(1)).unwrap();
        assert!(
            other.contains(&format!("(process {})", std::process::id())),
            "{other}"
        );
        drop(listener);
        assert_eq!(of_others(port, own.wrapping_add(1)), None);
    }

    #[test]
    fn odd_names_of_processes_are_read() {
        let stat = "12 (a) (b) S 1 34 34 0 -1 0";
        assert_eq!(name_and_group(stat), Some(("a) (b".to_string(), 34)));
        assert_eq!(name_and_group("12"), None);
    }
}
