# SPDX-License-Identifier: MIT OR Apache-2.0
"""The servers that in_memory.py compares, each with one thread for its connections, where it has that choice.

All run as the same user, write no access log, keep connections as long as the client wants, and show the same
certificate. Their other settings are what they are without a configuration, or what their documentation recommends for
static files.
"""

import os
import resource
import shutil

# As many as the machine allows, up to what no server needs.
DESCRIPTORS = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 40_000)
# Connections that are idle in a measurement: flash keeps a third of the descriptors for requests.
IDLE = min(10_000, DESCRIPTORS * 2 // 3 - 1000)
CONNECTIONS = IDLE + 300

NGINX = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections {most}; }}
http {{
  sendfile on; tcp_nopush on; access_log off; default_type application/octet-stream;
  keepalive_requests 1000000000; keepalive_timeout 600s; {more}
  client_body_temp_path {dir}/body; fastcgi_temp_path {dir}/fastcgi; proxy_temp_path {dir}/proxy;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096; listen 127.0.0.1:{tls} ssl backlog=4096; root {files};
    ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
  }}
}}
"""
NGINX_CACHE = "open_file_cache max=1024 inactive=60s; open_file_cache_valid 1s;"

APACHE = """
ServerRoot {dir}
ServerName localhost
PidFile {dir}/pid
ErrorLog {dir}/error.log
DefaultRuntimeDir {dir}
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{tls}
ListenBacklog 4096
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
StartServers 1
ServerLimit 1
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
AsyncRequestWorkerFactor 200
MaxKeepAliveRequests 0
KeepAliveTimeout 600
EnableSendfile On
DocumentRoot {files}
<VirtualHost 127.0.0.1:{tls}>
  SSLEngine on
  SSLCertificateFile {cert}
  SSLCertificateKeyFile {key}
</VirtualHost>
"""

LIGHTTPD = """
server.document-root = "{files}"
server.bind = "127.0.0.1"
server.port = {port}
server.listen-backlog = 4096
server.max-keep-alive-requests = 1000000000
server.max-keep-alive-idle = 600
server.max-connections = {most}
server.max-fds = {fds}
server.modules = ( "mod_openssl" )
$SERVER["socket"] == "127.0.0.1:{tls}" {{
  ssl.engine = "enable"
  ssl.pemfile = "{cert}"
  ssl.privkey = "{key}"
}}
"""

H2O = """
num-threads: 1
max-connections: {most}
tcp-fastopen: 0
error-log: {dir}/error.log
http1-request-timeout: 600
listen:
  host: 127.0.0.1
  port: {port}
listen:
  host: 127.0.0.1
  port: {tls}
  ssl:
    certificate-file: {cert}
    key-file: {key}
hosts:
  default:
    paths:
      /:
        file.dir: {files}
"""

CADDY = """
{{
	admin off
	auto_https off
}}
http://:{port} {{
	bind 127.0.0.1
	root * {files}
	file_server
}}
https://:{tls} {{
	bind 127.0.0.1
	tls {cert} {key}
	root * {files}
	file_server
}}
"""

FLASH = """
loops = 1
connections = {most}
{more}
[timeouts]
idle = "10m"

[[server]]
listen = ["127.0.0.1:{port}"]
tls = [{{ listen = ["127.0.0.1:{tls}"], cert = "{cert}", key = "{key}" }}]
root = "{files}"
"""
FLASH_CACHE = "open_files.most = 1024"


class Server:
    """How a server is started."""

    def __init__(self, name, program, config, words, *, more="", files="own", environment=None):
        self.name, self.program, self.config, self.words = name, program, config, words
        # Further settings; and whose files it serves, its own user's or another's.
        self.more, self.files, self.environment = more, files, environment or {}

    def command(self, place, port, tls, files, pair):
        """Writes the configuration to a directory of its own; what starts the server, and its environment."""
        names = {"dir": place, "port": port, "tls": tls, "files": files[self.files], "more": self.more}
        names["most"], names["fds"] = CONNECTIONS, DESCRIPTORS
        names["cert"], names["key"] = pair
        path = os.path.join(place, "server.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.config.format(**names))
        words = [word.format(path=path, **names) for word in self.words]
        return [self.program, *words], {name: value.format(**names) for name, value in self.environment.items()}


def known(flash, newest_nginx):
    """All servers, in the order of the table; those that are not installed have no program."""
    run = ["run", "{path}"]
    found = [
        Server("flash", flash, FLASH, run),
        Server("flash, open files", flash, FLASH, run, more=FLASH_CACHE),
        Server("flash, another's files", flash, FLASH, run, files="another"),
        Server("flash, no sandbox", flash, FLASH, run, more="sandbox = false"),
    ]
    words = ["-c", "{path}", "-e", "{dir}/error.log"]
    for name, program in (("nginx", newest_nginx), ("nginx of Debian", shutil.which("nginx"))):
        found.append(Server(name, program, NGINX, words))
        found.append(Server(f"{name}, open files", program, NGINX, words, more=NGINX_CACHE))
    caddy = {"GOMAXPROCS": "1", "XDG_CONFIG_HOME": "{dir}", "XDG_DATA_HOME": "{dir}"}
    run_caddy = ["run", "--adapter", "caddyfile", "--config", "{path}"]
    return found + [
        Server("Apache (event)", shutil.which("apache2"), APACHE, ["-f", "{path}", "-DFOREGROUND"]),
        Server("lighttpd", shutil.which("lighttpd"), LIGHTTPD, ["-D", "-f", "{path}"]),
        Server("h2o", shutil.which("h2o"), H2O, ["-m", "worker", "-c", "{path}"]),
        Server("Caddy", shutil.which("caddy"), CADDY, run_caddy, environment=caddy),
    ]
