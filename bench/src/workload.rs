//! Keys and the orders in which they are asked for, the same for every contender
//! and in every run.

use crate::contender::{Key, key};

pub struct Workload {
    /// How many requests each list has.
    pub length: usize,
    pub hot: Vec<Key>,
    pub uniform: Vec<Key>,
    /// Another uniform list, for a second thread.
    pub uniform_too: Vec<Key>,
    /// Zipf with exponent 1.0, the ranks scattered over the keys.
    pub zipf: Vec<Key>,
    /// Every key once.
    pub keys: Vec<Key>,
    /// The uniform list as places in `keys`.
    pub order: Vec<u32>,
}

impl Workload {
    /// In the lists the requests lie in memory in the order in which they come,
    /// as if they had just been received: the processor fetches them ahead, and
    /// what is cold is the limiter's own memory.
    pub fn new(keys: usize, length: usize) -> Self {
        let requests = |order: &[u32]| order.iter().map(|&at| key(at as usize)).collect();
        let order = uniform(&mut Random(1), keys, length);
        Workload {
            length,
            hot: requests(&vec![0; length]),
            uniform: requests(&order),
            uniform_too: requests(&uniform(&mut Random(2), keys, length)),
            zipf: requests(&zipf(&mut Random(3), keys, length)),
            keys: (0..keys).map(key).collect(),
            order,
        }
    }
}

fn uniform(random: &mut Random, keys: usize, length: usize) -> Vec<u32> {
    (0..length).map(|_| random.below(keys) as u32).collect()
}

fn zipf(random: &mut Random, keys: usize, length: usize) -> Vec<u32> {
    let mut key_of_rank: Vec<u32> = (0..keys as u32).collect();
    for rank in (1..keys).rev() {
        key_of_rank.swap(rank, random.below(rank + 1));
    }
    let mut total = 0.0;
    let cumulative: Vec<f64> = (1..=keys)
        .map(|rank| {
            total += 1.0 / rank as f64;
            total
        })
        .collect();
    (0..length)
        .map(|_| {
            let point = random.fraction() * total;
            let rank = cumulative.partition_point(|&sum| sum <= point);
            key_of_rank[rank.min(keys - 1)]
        })
        .collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
