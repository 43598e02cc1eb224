//! `grpc.health.v1.Health`: whether to send requests here, once or whenever that changes.

use super::grpc::{Code, Failure, Sender};
use super::wire::{Malformed, Reader, put_number};
use crate::serve::House;

/// The names that have a health: the process, what envoyproxy/ratelimit calls its service, and what it is called in its schema.
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
    let first = if is_known { ServingStatus::now(house) } else { ServingStatus::ServiceUnknown };
    let tell = async {
        client.send(&first.encoded()).await;
        if first == ServingStatus::Serving {
            drained.leaving().await;
            client.send(&ServingStatus::NotServing.encoded()).await;
        }
        drained.closing().await;
    };
    tokio::select! {
        () = tell => {}
        () = client.closed() => return,
    }
    client.end(Some(Failure::new(Code::Unavailable, "the service is closing"))).await;
}
