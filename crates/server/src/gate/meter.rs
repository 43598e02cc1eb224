//! How many requests came by each protocol, and how long they took.

use std::sync::atomic::{AtomicU64, Ordering};

use quanta::Instant;

use super::text::Exposition;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Grpc,
    Json,
    Http,
    Forward,
    Resp,
    Admin,
    Proxy,
}

impl Door {
    pub(crate) const ALL: [Self; 7] =
        [Self::Grpc, Self::Json, Self::Http, Self::Forward, Self::Resp, Self::Admin, Self::Proxy];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Json => "json",
            Self::Http => "http",
            Self::Forward => "forward_auth",
            Self::Resp => "resp",
            Self::Admin => "admin",
            Self::Proxy => "proxy",
        }
    }
}

/// Upper ends of the histogram's buckets, in nanoseconds.
const BUCKETS: [u64; 16] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    250_000_000,
];

/// The requests of one protocol.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
    /// Requests that were answered by an error of the protocol.
    errors: AtomicU64,
    connections: AtomicU64,
}

impl Meter {
    /// Starts the time of a request.
    #[inline]
    pub(crate) fn start(&self) -> Instant {
        Instant::now()
    }

    /// Ends it: the request was answered.
    #[inline]
    pub(crate) fn finish(&self, started: Instant) {
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|end| *end < took);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.nanoseconds.fetch_add(took, Ordering::Relaxed);
    }

    /// Ends it for requests that were read together and answered together: each took as long as all of them.
    #[inline]
    pub(crate) fn finish_all(&self, started: Instant, requests: u64) {
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|end| *end < took);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(requests, Ordering::Relaxed);
        }
        self.nanoseconds.fetch_add(took.saturating_mul(requests), Ordering::Relaxed);
    }

    /// Requests that were answered.
    pub(crate) fn requests(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Requests that were answered by an error.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a request that made no sense or could not be answered.
    pub(crate) fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn expose(&self, door: Door, out: &mut Exposition) {
        let label = ("protocol", door.name());
        out.histogram("tollgate_request_duration_seconds", "From a request read to its answer made.");
        self.expose_durations(label, out);
        out.counter("tollgate_request_errors_total", "Requests that were answered by an error.");
        out.sample(&[label], self.errors.load(Ordering::Relaxed));
        out.gauge("tollgate_connections", "Open connections.");
        out.sample(&[label], self.connections.load(Ordering::Relaxed));
    }

    /// The same under the names of envoyproxy/ratelimit.
    pub(super) fn expose_as_upstream(&self, out: &mut Exposition) {
        const HELP: &str = "As envoyproxy/ratelimit counts it.";
        let label = ("grpc_method", "ShouldRateLimit");
        let requests: u64 = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
        out.counter("ratelimit_service_total_requests", HELP);
        out.sample(&[label], requests);
        out.histogram("ratelimit_service_response_time_seconds", HELP);
        self.expose_durations(label, out);
        out.counter("ratelimit_service_should_rate_limit_error", HELP);
        out.sample(&[("err_type", "service_error")], self.errors.load(Ordering::Relaxed));
    }

    fn expose_durations(&self, label: (&str, &str), out: &mut Exposition) {
        let mut sum = 0;
        for (end, bucket) in BUCKETS.iter().map(Some).chain([None]).zip(&self.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            let end = end.map_or("+Inf".to_owned(), |nanoseconds| (*nanoseconds as f64 / 1e9).to_string());
            out.part("_bucket", &[label, ("le", &end)], sum);
        }
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        out.part("_sum", &[label], seconds);
        out.part("_count", &[label], sum);
    }
}
