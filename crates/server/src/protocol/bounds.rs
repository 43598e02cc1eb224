//! What a question may have at most, the same by every protocol.
//!
//! Generous on purpose: a proxy that lets requests pass when it gets no answer must not be brought to that by its
//! clients.

/// Attributes of a question.
pub(super) const MOST_ATTRIBUTES: usize = 64;
/// Descriptors of a question.
pub(super) const MOST_DESCRIPTORS: usize = 256;
/// Entries of a descriptor.
pub(super) const MOST_ENTRIES: usize = 64;
/// Units other than requests that a question has costs in.
pub(super) const MOST_UNITS: usize = 64;
/// The largest cost, which is what limits count to, and the largest whole number that every JSON library keeps. Envoy's
/// messages may have larger ones: they are over every limit, where an error would let them pass.
pub(crate) const MOST_COST: u64 = (1 << 53) - 1;
