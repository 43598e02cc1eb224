//! `grpc.reflection.v1.ServerReflection` and its older twin `v1alpha`, which differ in nothing but the name: what this
//! service understands, for tools that have no schema at hand.
//!
//! The schema is compiled in, as the files that `proto/` was compiled to. Nothing is indexed: it is small, and asked
//! for seldom.

use hyper::body::Incoming;

use super::grpc::{Messages, Sender};
use super::wire::{Malformed, Reader, put_bytes, put_head, put_number};
use crate::serve::Drained;

/// A `google.protobuf.FileDescriptorSet`. A test makes it anew and compares.
pub(super) static DESCRIPTORS: &[u8] = include_bytes!("../../../proto/descriptors.bin");

/// The services that tools are told of.
const SERVICES: [&str; 4] = [
    "envoy.service.ratelimit.v3.RateLimitService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

const NOT_FOUND: u64 = 5;

/// Answers one call to its end.
pub(super) async fn serve(body: Incoming, client: Sender, mut drained: Drained) {
    let mut requests = Messages::new(body);
    let failure = loop {
        let request = tokio::select! {
            request = requests.next() => request,
            () = drained.closing() => break None,
        };
        match request {
            Ok(Some(request)) => {
                if !client.send(&answer(&request)).await {
                    return;
                }
            }
            Ok(None) => break None,
            Err(failure) => break Some(failure),
        }
    };
    client.end(failure).await;
}

/// What is asked for.
enum Question<'a> {
    File(&'a str),
    Symbol(&'a str),
    /// There are no extensions.
    ExtensionsOf(&'a str),
    Services,
    Nothing,
}

/// The answer to one request. What makes no sense gets an error inside of the answer, as the schema has it.
fn answer(request: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let question = question(request);
    put_head(&mut out, 2, request.len());
    out.extend_from_slice(request);
    match question {
        Ok(Question::Services) => {
            let mut list = Vec::new();
            for service in SERVICES {
                let mut named = Vec::new();
                put_bytes(&mut named, 1, service.as_bytes());
                put_bytes(&mut list, 1, &named);
            }
            put_bytes(&mut out, 6, &list);
        }
        Ok(Question::File(name)) => put_file(&mut out, find(|file| name_of(file) == Ok(name)), name),
        Ok(Question::Symbol(symbol)) => put_file(&mut out, find(|file| has(file, symbol)), symbol),
        Ok(Question::ExtensionsOf(kind)) => put_error(&mut out, &format!("there are no extensions of {kind}")),
        Ok(Question::Nothing) => put_error(&mut out, "nothing was asked for"),
        Err(Malformed(why)) => put_error(&mut out, &format!("the message is no ServerReflectionRequest: {why}")),
    }
    out
}

fn question(request: &[u8]) -> Result<Question<'_>, Malformed> {
    let mut question = Question::Nothing;
    let mut fields = Reader::new(request);
    while let Some((number, field)) = fields.next()? {
        question = match number {
            3 => Question::File(field.text()?),
            4 => Question::Symbol(field.text()?),
            // The message of a type and a number; the type is its first field.
            5 => match Reader::new(field.bytes()?).next()? {
                Some((1, kind)) => Question::ExtensionsOf(kind.text()?),
                _ => Question::ExtensionsOf("nothing"),
            },
            6 => Question::ExtensionsOf(field.text()?),
            7 => Question::Services,
            _ => question,
        };
    }
    Ok(question)
}

fn put_file(out: &mut Vec<u8>, file: Option<&[u8]>, asked: &str) {
    match file {
        Some(file) => {
            let mut found = Vec::with_capacity(file.len() + 4);
            put_bytes(&mut found, 1, file);
            put_bytes(out, 4, &found);
        }
        None => put_error(out, &format!("{asked} is not known here")),
    }
}

fn put_error(out: &mut Vec<u8>, why: &str) {
    let mut error = Vec::new();
    put_number(&mut error, 1, NOT_FOUND);
    put_bytes(&mut error, 2, why.as_bytes());
    put_bytes(out, 7, &error);
}

/// The first file that `is_it`.
fn find(is_it: impl Fn(&[u8]) -> bool) -> Option<&'static [u8]> {
    let mut files = Reader::new(DESCRIPTORS);
    while let Ok(Some((_, file))) = files.next() {
        let file = file.bytes().ok()?;
        if is_it(file) {
            return Some(file);
        }
    }
    None
}

/// The first field of a descriptor of anything.
fn name_of(descriptor: &[u8]) -> Result<&str, Malformed> {
    let mut fields = Reader::new(descriptor);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            return field.text();
        }
    }
    Ok("")
}

/// What of a descriptor has a name of its own: the fields of a file, and of a message, a service and an enumeration in
/// it.
#[derive(Clone, Copy)]
enum Level {
    File,
    Message,
    Service,
    Enumeration,
    Leaf,
}

impl Level {
    /// What the field `number` at this level is.
    fn part(self, number: u32) -> Option<Self> {
        match (self, number) {
            (Self::File, 4) | (Self::Message, 3) => Some(Self::Message),
            (Self::File, 5) | (Self::Message, 4) => Some(Self::Enumeration),
            (Self::File, 6) => Some(Self::Service),
            (Self::Message | Self::Service | Self::Enumeration, 2) => Some(Self::Leaf),
            _ => None,
        }
    }
}

/// Whether `file` is where `symbol` is defined.
fn has(file: &[u8], symbol: &str) -> bool {
    let mut fields = Reader::new(file);
    while let Ok(Some((number, field))) = fields.next() {
        if number == 2 {
            let within = field.text().ok().and_then(|package| symbol.strip_prefix(package)?.strip_prefix('.'));
            return within.is_some_and(|path| defines(file, Level::File, path));
        }
    }
    false
}

/// Whether there is something of this path in a descriptor.
fn defines(descriptor: &[u8], level: Level, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let mut fields = Reader::new(descriptor);
    while let Ok(Some((number, field))) = fields.next() {
        if let (Some(level), Ok(part)) = (level.part(number), field.bytes())
            && name_of(part) == Ok(first)
            && rest.is_none_or(|rest| defines(part, level, rest))
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_where_they_are_defined() {
        let file = |symbol: &str| find(|file| has(file, symbol)).and_then(|file| name_of(file).ok());
        let rls = Some("envoy/service/ratelimit/v3/rls.proto");
        assert_eq!(file("envoy.service.ratelimit.v3.RateLimitService"), rls);
        assert_eq!(file("envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit"), rls);
        assert_eq!(file("envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit"), rls);
        assert_eq!(file("envoy.type.v3.RateLimitUnit"), Some("envoy/type/v3/ratelimit_unit.proto"));
        assert_eq!(file("google.protobuf.Struct"), Some("google/protobuf/struct.proto"));
        for service in SERVICES {
            assert!(file(service).is_some(), "{service}");
        }
        for unknown in ["", "envoy", "envoy.service.ratelimit.v3", "envoy.service.ratelimit.v3.Nothing", "Struct"] {
            assert_eq!(file(unknown), None, "{unknown}");
        }
    }
}
