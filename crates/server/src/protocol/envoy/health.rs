//! `grpc.health.v1.Health`: whether to send requests here, once or whenever that changes.

use std::time::Duration;

use super::grpc::{Code, Failure, Sender};
use super::wire::{Malformed, Reader, put_number};
use crate::serve::{House, Phase};

/// How often to look whether that has changed, for instance because there are rules now.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The names that have a health: the process, what envoyproxy/ratelimit calls its service, and what it is called in its
/// schema.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// As the enumeration of the schema has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServingStatus {
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl ServingStatus {
    fn now(house: &House) -> Self {
        if house.is_ready() { Self::Serving } else { Self::NotServing }
    }

    fn encoded(self) -> Vec<u8> {
        let mut message = Vec::with_capacity(2);
        put_number(&mut message, 1, self as u64);
        message
    }
}

/// Whether a request is about a service that there is.
fn is_known(request: &[u8]) -> Result<bool, Failure> {
    let service = service(request).map_err(|Malformed(why)| {
        Failure::new(Code::InvalidArgument, format!("the message is no HealthCheckRequest: {why}"))
    })?;
    Ok(SERVICES.contains(&service))
}

fn service(request: &[u8]) -> Result<&str, Malformed> {
    let mut service = "";
    let mut fields = Reader::new(request);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            service = field.text()?;
        }
    }
    Ok(service)
}

/// The answer to `Check`.
pub(super) fn check(house: &House, request: &[u8]) -> Result<Vec<u8>, Failure> {
    match is_known(request)? {
        true => Ok(ServingStatus::now(house).encoded()),
        false => Err(Failure::new(Code::NotFound, "unknown service")),
    }
}

/// Answers `Watch`: now, and when it changes. Whoever watches when the service closes is sent elsewhere.
pub(super) async fn watch(house: &House, request: &[u8], client: Sender) {
    let mut drained = house.drain.listen();
    let is_known = match is_known(request) {
        Ok(is_known) => is_known,
        Err(failure) => return client.end(Some(failure)).await,
    };
    let tell = async {
        if !is_known {
            client.send(&ServingStatus::ServiceUnknown.encoded()).await;
            return std::future::pending().await;
        }
        let mut leaving = house.drain.listen();
        let mut told = None;
        loop {
            let now = ServingStatus::now(house);
            if told.replace(now) != Some(now) && !client.send(&now.encoded()).await {
                return;
            }
            let is_leaving = leaving.phase() >= Phase::Leaving;
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                // At once: whoever is told late sends requests to a service that goes.
                () = leaving.leaving(), if !is_leaving => {}
            }
        }
    };
    tokio::select! {
        () = tell => return,
        () = drained.closing() => {}
        () = client.closed() => return,
    }
    client.end(Some(Failure::new(Code::Unavailable, "the service is closing"))).await;
}
