//! The messages of Envoy's rate limit service that the peers read and answer: as `prost` would make them of the
//! `.proto` files.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Duration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// The code of a request that is within its limits.
pub const OK: i32 = 1;
/// The unit of a limit per day.
pub const DAY: i32 = 4;
/// Where it is asked.
pub const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

impl RateLimitResponse {
    /// What a service says that counts nothing.
    pub fn constant() -> Self {
        let status = DescriptorStatus {
            code: OK,
            current_limit: Some(RateLimit { requests_per_unit: 1_000_000, unit: DAY }),
            limit_remaining: 999_999,
            duration_until_reset: Some(Duration { seconds: 43_200, nanos: 0 }),
        };
        Self { overall_code: OK, statuses: vec![status] }
    }
}
