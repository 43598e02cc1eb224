//! Which server has which keys. One that is single has all; in a Cluster it is by the slot of the tag.

use std::sync::Arc;

use super::address::Endpoint;
use super::desk::Standing;
use super::node::Node;
use crate::call::{TAGS, Tag};

/// How many slots a Cluster has.
pub(super) const SLOTS: u16 = 16384;

/// The servers, and where each tag lives. Never changed: a new one takes its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    nodes: Vec<Arc<Node>>,
    /// For each tag, which of the nodes; empty if all live at the first.
    homes: Vec<Option<u16>>,
}

impl Map {
    /// All keys live at one server.
    pub(super) fn single(node: Arc<Node>) -> Self {
        Self { nodes: vec![node], homes: Vec::new() }
    }

    /// Each tag lives where `home` says of its slot, by the number of the node.
    pub(super) fn by_slot(nodes: Vec<Arc<Node>>, home: impl Fn(u16) -> Option<usize>) -> Self {
        let homes = (0..TAGS).map(|tag| {
            let node = home(slot(Tag::new(u64::from(tag))))?;
            u16::try_from(node).ok().filter(|_| node < nodes.len())
        });
        Self { homes: homes.collect(), nodes }
    }

    /// The server for these keys.
    #[inline]
    pub(super) fn home(&self, tag: Tag) -> Option<&Arc<Node>> {
        if self.homes.is_empty() {
            return self.nodes.first();
        }
        self.nodes.get(usize::from((*self.homes.get(usize::from(tag.number()))?)?))
    }

    /// Whether every tag lives at a server that stands in one of these ways.
    pub(super) fn all_stand(&self, ways: &[Standing]) -> bool {
        let well: Vec<_> = self.nodes.iter().map(|node| ways.contains(&node.desk().standing())).collect();
        if self.homes.is_empty() {
            return well.first() == Some(&true);
        }
        let at = |home: &Option<u16>| home.and_then(|home| well.get(usize::from(home)).copied());
        self.homes.iter().all(|home| at(home) == Some(true))
    }

    /// Whether whoever asks finds a server that answered, or that will be tried.
    pub(super) fn is_well(&self) -> bool {
        self.all_stand(&[Standing::Serving, Standing::Trying])
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn find(&self, endpoint: &Endpoint) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.endpoint() == endpoint)
    }
}

/// The slot of the keys of one tag.
pub(super) fn slot(tag: Tag) -> u16 {
    crc16(&tag.text()) % SLOTS
}

/// CRC16 as Cluster uses it: the polynomial 0x1021 from zero, nothing reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // As CLUSTER KEYSLOT answers.
        assert_eq!(crc16(b"foo") % SLOTS, 12182);
    }

    #[test]
    fn tags_are_spread_over_the_slots() {
        // As evenly as chance would: of 1,024 tags each of 16 equal parts of the slots has about 64.
        let mut parts = [0; 16];
        for tag in 0..TAGS {
            parts[usize::from(slot(Tag::new(u64::from(tag))) / 1024)] += 1;
        }
        assert!(parts.iter().all(|tags| (48..=80).contains(tags)), "{parts:?}");
    }
}
