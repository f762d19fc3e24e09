//! latlab-dynamic behind nginx, as FastCGI. Every reply is checked to the last byte.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{files, free_port, number, run, Running};

#[test]
fn the_full_mix_is_served_behind_nginx() {
    let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx"];
    let Some(nginx) = nginx
        .iter()
        .find(|path| std::path::Path::new(path).exists())
    else {
        debox_skipped::skipped("the_full_mix_is_served_behind_nginx: nginx is not installed");
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    // nginx's workers run as another user.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("own directory");
    let files = files(place.path());
    let at = place.path().display();
    let socket = format!("{at}/dynamic.sock");
    let posted = format!("{at}/posted");
    let program = Command::new(env!("CARGO_BIN_EXE_latlab-dynamic"))
        .args([
            "--files",
            &files,
            "--listen",
            &socket,
            "--post-log",
            &posted,
        ])
        .spawn()
        .expect("latlab-dynamic runs");
    let _program = Running(program);
    let port = free_port();
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/nginx.pid; error_log {at}/error.log;
        events {{ worker_connections 256; }}
        http {{ access_log off; client_body_temp_path {at}/body; fastcgi_temp_path {at}/fastcgi;
            proxy_temp_path {at}/proxy; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
            server {{ listen 127.0.0.1:{port}; root {files};
                location /dynamic/ {{ fastcgi_pass unix:{socket};
                    fastcgi_param REQUEST_URI $request_uri; fastcgi_param REQUEST_METHOD $request_method;
                    fastcgi_param CONTENT_LENGTH $content_length; }} }} }}"
    );
    let path = place.path().join("nginx.conf");
    std::fs::write(&path, config).expect("it can be written");
    let nginx = Command::new(nginx)
        .arg("-c")
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx runs");
    // SIGTERM also ends its worker.
    let nginx = EndedBySignal(nginx);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err()
        || !std::path::Path::new(&socket).exists()
    {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let url = format!("http://127.0.0.1:{port}/");
    let all = [
        "--files",
        &files,
        "--mix",
        "full",
        "-c",
        "8",
        "-n",
        "3000",
        "--duration",
        "120s",
        "--verify",
        "100%",
    ];
    let summary = run(&url, &all);
    assert_eq!(number(&summary, "/ok"), 3000, "{summary:#}");
    // 4.8 % of the requests were posted, each a line of its own.
    let lines = std::fs::read_to_string(&posted)
        .expect("what was posted")
        .lines()
        .count();
    assert!((90..210).contains(&lines), "{lines}");
    drop(nginx);
}

struct EndedBySignal(std::process::Child);

impl Drop for EndedBySignal {
    fn drop(&mut self) {
        latlab::sys::signal(self.0.id(), libc::SIGTERM);
        let _ = self.0.wait();
    }
}
