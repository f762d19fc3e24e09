#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares latlab with wrk, and with oha and vegeta if they are installed, on the same nginx, in interleaved rounds.

Closed loops with the same number of connections request the same file. Figures that all tools measure,
requests per second and the mean latency, should agree within the spread of the rounds. wrk 4 adds requests
to its latencies that it assumes to have omitted (`stats_correct`), so they are too long if a run is uneven. In
a closed loop without pauses the mean is connections divided by throughput, independent of the generator;
that is printed, too. The generators' own CPU time per request limits what each can do on one core.

With --rate the loops are open: latlab, oha and vegeta start requests at that rate, evenly spaced. The latencies
of latlab and oha then count from the intended start, those of vegeta from when a request was sent.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request

CONFIG = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 8192; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;
  client_body_temp_path {dir}/body; fastcgi_temp_path {dir}/fastcgi; proxy_temp_path {dir}/proxy;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  server {{ listen 127.0.0.1:{port} backlog=8192; root {dir}/files; }} }}
"""
UNITS = {"us": 1e3, "ms": 1e6, "s": 1e9}


def measured(command):
    """Output and CPU seconds of a command."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, child.returncode


class Bench:
    def __init__(self, options, url):
        self.options = options
        self.url = url
        self.pin = ["taskset", "-c", options.generator_cpu] if options.generator_cpu else []

    def latlab(self):
        options = self.options
        text, cpu, status = measured(self.pin + [
            options.latlab, "run", self.url, "-c", str(options.connections),
            *(["--rate", str(options.rate), "--gaps", "constant"] if options.rate else []),
            "--duration", f"{options.seconds}s", "--format", "json"])
        if status not in (0, 3):
            raise SystemExit(f"latlab failed with {status}")
        result = json.loads(text)
        latency = result["latency_from_intended" if options.rate else "latency_from_start"]
        return {
            "rps": result["throughput_rps"], "p50": latency["p50_ns"], "p99": latency["p99_ns"],
            "mean": latency["mean_ns"], "cpu_us": cpu / result["requests"] * 1e6,
            "late_p99": max(result["lateness"]["p99_ns"], result["reply_lateness"]["p99_ns"]),
            "refused": result["refused"],
        }

    def wrk(self):
        options = self.options
        text, cpu, status = measured(self.pin + [
            "wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency", self.url])
        if status != 0:
            raise SystemExit(f"wrk failed with {status}")

        def ns(pattern):
            number, unit = re.search(pattern + r"\s+([\d.]+)(us|ms|s)", text).groups()
            return float(number) * UNITS[unit]

        requests = int(re.search(r"(\d+) requests in", text).group(1))
        return {
            "rps": float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)),
            "p50": ns("50%"), "p99": ns("99%"), "mean": ns("Latency"), "cpu_us": cpu / requests * 1e6,
        }

    def oha(self):
        options = self.options
        text, cpu, status = measured(self.pin + [
            "oha", "--no-tui", "--output-format", "json", "-c", str(options.connections),
            *(["-q", str(options.rate), "--latency-correction"] if options.rate else []),
            "-z", f"{options.seconds}s", self.url])
        if status != 0:
            raise SystemExit(f"oha failed with {status}")
        result = json.loads(text)
        percentiles = result["latencyPercentiles"]
        requests = sum(result["statusCodeDistribution"].values())
        return {
            "rps": result["summary"]["requestsPerSec"], "p50": percentiles["p50"] * 1e9,
            "p99": percentiles["p99"] * 1e9, "mean": result["summary"]["average"] * 1e9,
            "cpu_us": cpu / requests * 1e6,
        }


    def vegeta(self):
        options = self.options
        workers = str(options.connections)
        with tempfile.TemporaryDirectory(prefix="latlab-vegeta-") as directory:
            targets, results = os.path.join(directory, "targets"), os.path.join(directory, "results")
            with open(targets, "w", encoding="utf-8") as file:
                file.write(f"GET {self.url}\n")
            # A rate of 0 means as fast as the workers can.
            _, cpu, status = measured(self.pin + [
                "vegeta", "attack", "-targets", targets, "-output", results,
                "-rate", str(options.rate), "-workers", workers, "-max-workers", workers,
                "-connections", workers, "-max-body", "0", "-duration", f"{options.seconds}s"])
            if status != 0:
                raise SystemExit(f"vegeta failed with {status}")
            report = subprocess.run(["vegeta", "report", "-type", "json", results],
                                    check=True, capture_output=True, text=True).stdout
        result = json.loads(report)
        latency = result["latencies"]
        return {
            "rps": result["throughput"], "p50": latency["50th"], "p99": latency["99th"],
            "mean": latency["mean"], "cpu_us": cpu / result["requests"] * 1e6,
        }


def wait_for(url):
    for _ in range(200):
        try:
            urllib.request.urlopen(url).read()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("nginx does not come up")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latlab", default="target/release/latlab")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rate", type=int, default=0, help="requests in a second, in open loops")
    parser.add_argument("--size", type=int, default=1024, help="of the file")
    parser.add_argument("--port", type=int, default=18731)
    parser.add_argument("--server-cpu", default="0")
    parser.add_argument("--generator-cpu", default="1")
    parser.add_argument("--json", help="where to write all rounds")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="latlab-bench-") as directory:
        os.chmod(directory, 0o755)
        os.mkdir(os.path.join(directory, "files"))
        with open(os.path.join(directory, "files", "file"), "wb") as file:
            file.write(os.urandom(options.size))
        config = os.path.join(directory, "nginx.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(dir=directory, port=options.port))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        pin = ["taskset", "-c", options.server_cpu] if options.server_cpu else []
        server = subprocess.Popen(pin + [nginx, "-c", config], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{options.port}/file"
            wait_for(url)
            bench = Bench(options, url)
            peers = {"latlab": bench.latlab}
            # wrk 4 does not support rates.
            for name in ("oha", "vegeta") if options.rate else ("wrk", "oha", "vegeta"):
                if shutil.which(name):
                    peers[name] = getattr(bench, name)
            rounds = {name: [] for name in peers}
            for number in range(options.rounds):
                order = list(peers) if number % 2 == 0 else list(peers)[::-1]
                for name in order:
                    rounds[name].append(peers[name]())
        finally:
            server.terminate()
            server.wait()

    print(f"{options.connections} connections, {options.size} bytes, {options.rounds} rounds of "
          f"{options.seconds} s; median (least to greatest)")
    columns = [("rps", 1, "requests/s"), ("mean", 1e3, "mean, us"), ("p50", 1e3, "p50, us"),
               ("p99", 1e3, "p99, us"), ("cpu_us", 1, "generator CPU, us/request")]
    for key, scale, title in columns:
        print(title)
        for name, results in rounds.items():
            values = sorted(result[key] / scale for result in results)
            print(f"  {name:<7} {statistics.median(values):>10.1f} ({values[0]:.1f} to {values[-1]:.1f})")
    print("over latlab's, round by round")
    for key, _, title in columns:
        for name, results in rounds.items():
            if name == "latlab":
                continue
            ratios = sorted(other[key] / own[key] for own, other in zip(rounds["latlab"], results))
            print(f"  {name:<7} {title:<29} {statistics.median(ratios):>6.3f} "
                  f"({ratios[0]:.3f} to {ratios[-1]:.3f})")
    if not options.rate:
        print("mean by Little's law (connections over throughput), us")
        for name, results in rounds.items():
            values = sorted(options.connections / result["rps"] * 1e6 for result in results)
            print(f"  {name:<7} {statistics.median(values):>10.1f} ({values[0]:.1f} to {values[-1]:.1f})")
    late = [result["late_p99"] / 1e3 for result in rounds["latlab"]]
    print(f"latlab's own lateness, p99: {min(late):.1f} to {max(late):.1f} us")
    for reason in {result["refused"] for result in rounds["latlab"]} - {None}:
        print(f"latlab says: not valid: {reason}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rounds, file, indent=1)


if __name__ == "__main__":
    main()
