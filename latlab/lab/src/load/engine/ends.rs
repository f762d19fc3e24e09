//! How requests and connections end, and which results are kept.

use std::cmp::Reverse;

use super::{token, Engine, RETRY_NS};
use crate::load::connection::{Job, Phase};
use crate::load::{Mode, Outcome};
use crate::rows::{Failure, Row};
use crate::workload::Kind;

impl Engine<'_> {
    /// The connection ended in the middle of a job.
    pub(super) fn ended(&mut self, token: u64) {
        let Some(connection) = self.get(token) else {
            return;
        };
        if connection.reply.ends_with_connection() {
            return self.complete(token, false);
        }
        if connection.job.is_none() {
            return self.close(token);
        }
        let failure = match connection.reply.status {
            0 => Failure::Closed,
            _ => Failure::Short,
        };
        self.retry_or_fail(token, failure);
    }

    /// Repeats the request, once and on a new connection, if the server closed an idle connection while the
    /// request was on its way. Browsers do that, too, whether the server sent a FIN or, because it had
    /// already closed its socket, a reset. The time for it is part of the request's latency.
    pub(super) fn retry_or_fail(&mut self, token: u64, failure: Failure) {
        let idempotent = self.workload.shape().is_idempotent();
        let Some(connection) = self.get(token) else {
            return;
        };
        let raced = matches!(failure, Failure::Closed | Failure::Reset) && connection.served > 0;
        let repeatable = |job: &Job| {
            job.first_byte_ns.is_none()
                && !job.retried
                && job.request.kind != Kind::Post
                && idempotent
        };
        let Some(job) = connection.job.take_if(|job| raced && repeatable(job)) else {
            return self.fail(token, failure);
        };
        self.under_way -= 1;
        self.close(token);
        self.outcome.retried += 1;
        self.outcome.retried_after_reset += u64::from(failure == Failure::Reset);
        self.connect(Job {
            start_ns: None,
            retried: true,
            ..job
        });
    }

    pub(super) fn row(&self, job: &Job, now: i64) -> Row {
        Row {
            intended_ns: job.intended_ns,
            start_ns: job.start_ns.unwrap_or(now),
            first_byte_ns: job.first_byte_ns,
            end_ns: None,
            connect_ns: None,
            tls_ns: None,
            size: job.request.size,
            received: 0,
            path: job.request.path,
            connection: 0,
            status: 0,
            process: self.config.process,
            local_port: 0,
            kind: job.request.kind,
            class: job.request.class,
            failure: None,
        }
    }

    pub(super) fn keep(&mut self, row: Row) {
        let ended_ns = row.end_ns.unwrap_or_else(|| self.now());
        let failed = row.failure.map(Failure::name);
        self.in_flight.end(row.intended_ns, ended_ns, failed);
        self.outcome.rows += 1;
        self.outcome.failures += u64::from(row.failure.is_some());
        if let (Some(watch), Some(end), None) = (&mut self.watch, row.end_ns, row.failure) {
            watch.record(end - row.intended_ns);
        }
        if let Err(error) = self.spool.push(&row) {
            self.outcome
                .spool_error
                .get_or_insert_with(|| error.to_string());
        }
    }

    /// Takes the job off a connection, with a row of what the connection knows.
    fn take_row(&mut self, token: u64, now: i64) -> Option<(Job, Row)> {
        let connection = self.get(token)?;
        let job = connection.job.take()?;
        connection.expected = None;
        let (number, port) = (connection.number, connection.local_port);
        let opening = connection.opening.take().unwrap_or_default();
        let reply = &connection.reply;
        let (status, received, length) = (reply.status, reply.received, reply.length);
        self.under_way -= 1;
        let row = self.row(&job, now);
        let row = Row {
            connection: number,
            local_port: port,
            status,
            received,
            connect_ns: opening.connect_ns,
            tls_ns: opening.tls_ns,
            size: row.size.or(length),
            ..row
        };
        Some((job, row))
    }

    /// The reply is complete.
    pub(super) fn complete(&mut self, token: u64, surplus: bool) {
        let now = self.now();
        let Some(connection) = self.get(token) else {
            return;
        };
        connection.served += 1;
        let (differs, ad) = (connection.differs, connection.reply.last_ad);
        let ends = connection.reply.closes || connection.last;
        let Some((job, row)) = self.take_row(token, now) else {
            return;
        };
        let size = row.size.unwrap_or(row.received);
        let received = row.received;
        let wrong_ad = job.request.checked
            && self
                .workload
                .expected_ad(&job.request)
                .is_some_and(|expected| ad != Some(expected));
        let failure = match () {
            () if !row.kind.expects(row.status) => Some(Failure::Status),
            () if surplus || row.received > size => Some(Failure::Long),
            () if row.received < size => Some(Failure::Short),
            () if differs || wrong_ad => Some(Failure::Content),
            () => None,
        };
        let good = if failure.is_none() { received } else { 0 };
        let is_redirect = (300..400).contains(&row.status) && failure.is_none();
        if is_redirect && row.intended_ns >= self.config.warmup_ns {
            *self.outcome.redirects.entry(row.status).or_default() += 1;
            let location = self.get(token).and_then(|its| its.reply.location.take());
            self.outcome.location = self.outcome.location.take().or(location);
        }
        self.keep(Row {
            end_ns: Some(now),
            size: Some(size),
            failure,
            ..row
        });
        if surplus {
            self.close(token);
        } else if ends {
            self.let_end(token, now);
        } else if let Some(connection) = self.get(token) {
            connection.phase = Phase::Idle;
            if self.arrivals.is_some() {
                self.idle.push(token);
            }
        }
        self.next_of_client(&job, now, good);
    }

    pub(super) fn fail(&mut self, token: u64, failure: Failure) {
        let now = self.now();
        if let Some(wrong) = self.get(token).and_then(|its| its.transport.wrong()) {
            let wrong = wrong.to_string();
            self.outcome.tls_error.get_or_insert(wrong);
        }
        let taken = self.take_row(token, now);
        self.close(token);
        if let Some((job, row)) = taken {
            self.keep(Row {
                failure: Some(failure),
                ..row
            });
            let pause = match failure {
                Failure::Refused | Failure::Unreachable | Failure::Local | Failure::Tls => RETRY_NS,
                _ => 0,
            };
            self.next_of_client(&job, now + pause, 0);
        }
    }

    /// In a closed loop, schedules the client's next request.
    pub(super) fn next_of_client(&mut self, job: &Job, from: i64, bytes: u64) {
        let at = match self.config.mode {
            Mode::Open { .. } | Mode::Replay { .. } => return,
            Mode::Closed { think_ns } => from + think_ns,
            Mode::Paced { bits_per_second } => {
                let least_ns = bytes as f64 * 8e9 / bits_per_second as f64;
                from.max(job.intended_ns + least_ns as i64)
            }
        };
        if job.intended_ns >= self.config.warmup_ns {
            if let Some((sum, ns)) = self.outcome.clients.get_mut(job.client as usize) {
                *sum += bytes;
                *ns += at - job.intended_ns;
            }
        }
        match at <= self.now() {
            true => self.ready.push_back((at, job.client)),
            false => self.timers.push(Reverse((at, job.client))),
        }
    }

    /// Waits for the server to close the connection.
    fn let_end(&mut self, token: u64, now: i64) {
        let timeout = self.config.timeout_ns;
        if let Some(connection) = self.get(token) {
            connection.phase = Phase::Ending;
            let served = connection.served;
            self.live -= 1;
            self.limits.push_back((now + timeout, token, served));
        }
    }

    pub(super) fn close(&mut self, token: u64) {
        let Some(connection) = self.get(token) else {
            return;
        };
        if connection.phase != Phase::Ending {
            self.live -= 1;
        }
        let index = (token & u64::from(u32::MAX)) as usize;
        // Closing also removes it from epoll.
        self.connections[index] = None;
        self.free.push(index);
    }

    /// Fails what has exceeded its time limit.
    pub(super) fn expire(&mut self, now: i64) {
        while let Some((limit, token, served)) = self.limits.front().copied() {
            if limit > now {
                return;
            }
            self.limits.pop_front();
            let Some(connection) = self.get(token) else {
                continue;
            };
            let same = connection.served == served;
            match connection.phase {
                Phase::Connecting | Phase::Securing | Phase::Busy if same => {
                    self.fail(token, Failure::Timeout)
                }
                Phase::Ending if same => self.close(token),
                _ => {}
            }
        }
    }

    /// Fails what is left when the run is over.
    pub(super) fn finish(mut self) -> Outcome {
        let now = self.now();
        self.in_flight.stop(now);
        let interrupted = self.outcome.interrupted;
        let left = if interrupted {
            Failure::Interrupted
        } else {
            Failure::Timeout
        };
        let tokens: Vec<u64> = self
            .connections
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some(token(index, slot.as_ref()?.number)))
            .collect();
        for token in tokens {
            if let Some((_, row)) = self.take_row(token, now) {
                self.keep(Row {
                    failure: Some(left),
                    ..row
                });
            }
        }
        while let Some(job) = self.queue.pop_front() {
            let row = self.row(&job, now);
            self.keep(Row {
                failure: Some(if interrupted { left } else { Failure::Unsent }),
                ..row
            });
        }
        if let Err(error) = self.spool.flush() {
            self.outcome
                .spool_error
                .get_or_insert_with(|| error.to_string());
        }
        self.outcome.lateness = self.lateness.counts();
        self.outcome.reply_lateness = self.reply_lateness.counts();
        self.outcome.in_flight = self.in_flight.counted();
        self.outcome
    }
}
