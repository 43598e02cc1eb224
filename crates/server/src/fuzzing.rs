//! Doors for the fuzz targets in `fuzz/`: any bytes as what clients send. Not for anybody else.

use crate::protocol::envoy;

/// Any bytes as the body of `/json`.
pub fn envoy_json(bytes: &[u8]) -> Result<(), String> {
    envoy::fuzz_json(bytes)
}

/// Any bytes as a message of Envoy's rate limit service.
pub fn envoy_message(bytes: &[u8]) -> Result<(), String> {
    envoy::fuzz_message(bytes)
}
