// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx's directives, by what becomes of them.

/// What becomes of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is translated, or named where it cannot be.
    Read,
    /// flash does the same, or needs nothing for it.
    Unneeded,
    /// flash has nothing like it, and this is what that means.
    LeftOut(&'static str),
    /// It keeps clients out.
    Unprotected(&'static str),
}

/// Translated by the modules of servers and locations.
const READ: &[&str] = &[
    "access_log",
    "add_header",
    "alias",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "autoindex",
    "charset",
    "client_header_timeout",
    "client_max_body_size",
    "default_type",
    "deny",
    "error_page",
    "expires",
    "fastcgi_connect_timeout",
    "fastcgi_index",
    "fastcgi_param",
    "fastcgi_pass",
    "fastcgi_read_timeout",
    "fastcgi_send_timeout",
    "grpc_pass",
    "gzip_static",
    "http",
    "if",
    "index",
    "internal",
    "keepalive_timeout",
    "large_client_header_buffers",
    "limit_conn",
    "limit_conn_zone",
    "limit_except",
    "limit_rate",
    "limit_req",
    "limit_req_zone",
    "listen",
    "location",
    "log_format",
    "memcached_pass",
    "proxy_connect_timeout",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_send_timeout",
    "proxy_set_header",
    "return",
    "rewrite",
    "root",
    "satisfy",
    "scgi_pass",
    "send_timeout",
    "server",
    "server_name",
    "ssl",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_protocols",
    "stub_status",
    "try_files",
    "types",
    "upstream",
    "user",
    "uwsgi_pass",
    "worker_processes",
];

/// About nginx itself, its buffers and its caches, or what flash does in any case.
const UNNEEDED: &[&str] = &[
    "absolute_redirect",
    "accept_mutex",
    "aio",
    "autoindex_exact_size",
    "autoindex_localtime",
    "break",
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_body_in_file_only",
    "client_body_temp_path",
    "client_body_timeout",
    "client_header_buffer_size",
    "connection_pool_size",
    "daemon",
    "debug_connection",
    "directio",
    "disable_symlinks",
    "env",
    "error_log",
    "etag",
    "events",
    "fastcgi_buffer_size",
    "fastcgi_buffering",
    "fastcgi_buffers",
    "fastcgi_busy_buffers_size",
    "fastcgi_keep_conn",
    "fastcgi_request_buffering",
    "fastcgi_split_path_info",
    "fastcgi_temp_file_write_size",
    "fastcgi_temp_path",
    "google_perftools_profiles",
    "gzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_min_length",
    "gzip_proxied",
    "gzip_types",
    "gzip_vary",
    "http2_max_concurrent_streams",
    "keepalive_disable",
    "keepalive_requests",
    "lingering_close",
    "lingering_time",
    "lingering_timeout",
    "load_module",
    "lock_file",
    "log_not_found",
    "log_subrequest",
    "master_process",
    "max_ranges",
    "merge_slashes",
    "min_delete_depth",
    "multi_accept",
    "open_file_cache",
    "open_file_cache_errors",
    "open_file_cache_min_uses",
    "open_file_cache_valid",
    "open_log_file_cache",
    "output_buffers",
    "pcre_jit",
    "pid",
    "port_in_redirect",
    "postpone_output",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_http_version",
    "proxy_max_temp_file_size",
    "proxy_request_buffering",
    "proxy_socket_keepalive",
    "proxy_temp_file_write_size",
    "proxy_temp_path",
    "quic_retry",
    "read_ahead",
    "recursive_error_pages",
    "request_pool_size",
    "reset_timedout_connection",
    "resolver",
    "resolver_timeout",
    "rewrite_log",
    "scgi_temp_path",
    "sendfile",
    "sendfile_max_chunk",
    "server_name_in_redirect",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_tokens",
    "set",
    "ssl_buffer_size",
    "ssl_ciphers",
    "ssl_conf_command",
    "ssl_dhparam",
    "ssl_early_data",
    "ssl_ecdh_curve",
    "ssl_prefer_server_ciphers",
    "ssl_session_cache",
    "ssl_session_tickets",
    "ssl_session_timeout",
    "tcp_nodelay",
    "tcp_nopush",
    "thread_pool",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "underscores_in_headers",
    "use",
    "uwsgi_temp_path",
    "variables_hash_bucket_size",
    "variables_hash_max_size",
    "working_directory",
    "worker_aio_requests",
    "worker_connections",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_rlimit_core",
    "worker_rlimit_nofile",
    "worker_shutdown_timeout",
];

const LEFT_OUT: &[(&str, &str)] = &[
    ("add_after_body", "nothing is added to answers"),
    ("add_before_body", "nothing is added to answers"),
    ("add_trailer", "answers have no trailers"),
    ("addition_types", "nothing is added to answers"),
    ("brotli", "files are not compressed on the fly; put .br files beside them"),
    ("dav_methods", "files cannot be written by clients"),
    ("fastcgi_cache", "answers of programs are not cached"),
    ("fastcgi_cache_path", "answers of programs are not cached"),
    ("fastcgi_hide_header", "the field of the program's answer reaches the client"),
    ("fastcgi_intercept_errors", "error pages of programs are sent as they are"),
    ("fastcgi_ignore_headers", "fields of a program's answer such as X-Accel-Redirect have no meaning to flash, and reach the client"),
    ("geo", "its variable has no value"),
    ("gunzip", "compressed files are not unpacked for clients that take none"),
    ("gzip", "answers are not compressed on the fly; put .gz, .zst or .br files beside the files, and set `precompressed`"),
    ("http2", "HTTP/2 is not spoken; clients use HTTP/1.1"),
    ("http3", "HTTP/3 is not spoken; clients use HTTP/1.1"),
    ("image_filter", "pictures are sent as they are"),
    ("mail", "flash is no server for mail"),
    ("map", "its variable has no value"),
    ("mirror", "requests are not copied"),
    ("mp4", "a video is sent from its begin, or by ranges"),
    ("override_charset", "`charset` holds for files only"),
    ("perl", "Perl is not run"),
    ("proxy_cache", "answers of upstreams are not cached"),
    ("proxy_cache_path", "answers of upstreams are not cached"),
    ("proxy_cookie_domain", "cookies of upstreams are sent as they are"),
    ("proxy_cookie_path", "cookies of upstreams are sent as they are"),
    ("proxy_hide_header", "the field of the upstream's answer reaches the client"),
    ("proxy_ignore_client_abort", "an upstream's connection ends when the client goes away"),
    ("proxy_intercept_errors", "error pages of upstreams are sent as they are"),
    ("proxy_next_upstream", "flash tries another upstream by its own rules"),
    ("set_real_ip_from", "the client's address is that of the connection: `allow`, `deny` and limits hold for the proxy in front"),
    ("real_ip_header", "the client's address is that of the connection"),
    ("slice", "large answers of upstreams are asked for at once"),
    ("split_clients", "its variable has no value"),
    ("ssi", "files are sent without what their SSI commands would put in"),
    ("ssl_stapling", "TLS answers have no OCSP response"),
    ("ssl_stapling_verify", "TLS answers have no OCSP response"),
    ("ssl_trusted_certificate", "TLS answers have no OCSP response"),
    ("stream", "flash is no proxy for other protocols than HTTP"),
    ("sub_filter", "answers are sent as they are"),
    ("userid", "clients get no cookie of the server"),
    ("xslt_stylesheet", "documents are sent as they are"),
];

const UNPROTECTED: &[(&str, &str)] = &[
    (
        "auth_request",
        "no other server is asked whether a client may have the answer",
    ),
    ("auth_jwt", "tokens are not checked"),
    ("auth_delay", "wrong passwords are answered at once"),
    ("modsecurity", "requests are not filtered"),
    ("secure_link", "links need no signature"),
    ("secure_link_md5", "links need no signature"),
    ("ssl_client_certificate", "clients need no certificate"),
    ("ssl_crl", "clients need no certificate"),
    (
        "ssl_password_file",
        "a key with a password cannot be read: decrypt it",
    ),
    (
        "ssl_reject_handshake",
        "hosts without a certificate of their own are shown the first one",
    ),
    ("ssl_verify_client", "clients need no certificate"),
    ("valid_referers", "links from other sites are followed"),
];

pub fn fate(name: &str) -> Fate {
    let meaning = |table: &'static [(&str, &str)]| {
        let found = table.iter().find(|(its, _)| *its == name);
        found.map(|(_, meaning)| *meaning)
    };
    if READ.contains(&name) {
        return Fate::Read;
    }
    if UNNEEDED.contains(&name) {
        return Fate::Unneeded;
    }
    if let Some(meaning) = meaning(UNPROTECTED) {
        return Fate::Unprotected(meaning);
    }
    Fate::LeftOut(meaning(LEFT_OUT).unwrap_or("flash has nothing like it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_has_one_fate() {
        let pairs = LEFT_OUT.iter().chain(UNPROTECTED).map(|(name, _)| *name);
        let mut all: Vec<&str> = READ.iter().chain(UNNEEDED).copied().chain(pairs).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(fate("root"), Fate::Read);
        assert!(matches!(fate("no_such_directive"), Fate::LeftOut(_)));
    }
}
