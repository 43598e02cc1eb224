//! A segment tree that adds to ranges and knows the largest value of a prefix.

/// Values by index, of which each begins with one given.
pub(super) struct Tree {
    size: usize,
    most: Vec<i128>,
    added: Vec<i128>,
}

impl Tree {
    pub(super) fn new(values: &[i128]) -> Self {
        let size = values.len().next_power_of_two();
        let mut most = vec![i128::MIN / 4; 2 * size];
        most[size..size + values.len()].copy_from_slice(values);
        for node in (1..size).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { size, most, added: vec![0; 2 * size] }
    }

    /// Adds `amount` to the first `count` values.
    pub(super) fn add(&mut self, count: usize, amount: i128) {
        self.add_within(1, 0, self.size, count, amount);
    }

    fn add_within(&mut self, node: usize, from: usize, width: usize, count: usize, amount: i128) {
        if count <= from {
            return;
        }
        if count >= from + width {
            self.most[node] += amount;
            self.added[node] += amount;
            return;
        }
        let half = width / 2;
        self.add_within(2 * node, from, half, count, amount);
        self.add_within(2 * node + 1, from + half, half, count, amount);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    /// The largest of the first `count` values.
    pub(super) fn most(&self, count: usize) -> i128 {
        self.most_within(1, 0, self.size, count)
    }

    fn most_within(&self, node: usize, from: usize, width: usize, count: usize) -> i128 {
        if count <= from {
            return i128::MIN / 4;
        }
        if count >= from + width {
            return self.most[node];
        }
        let half = width / 2;
        let first = self.most_within(2 * node, from, half, count);
        first.max(self.most_within(2 * node + 1, from + half, half, count)) + self.added[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_as_a_plain_list_does() {
        let mut values: Vec<i128> = (0..37).map(|n| (n * 7919) % 101).collect();
        let mut tree = Tree::new(&values);
        let mut seed = 1_u64;
        for _ in 0..500 {
            seed = tollgate_core::mix(seed.wrapping_add(1));
            let (count, amount) = ((seed % 40) as usize, i128::from(seed >> 40 & 63) - 31);
            tree.add(count, amount);
            values.iter_mut().take(count).for_each(|value| *value += amount);
            let asked = (seed >> 20 & 31) as usize + 1;
            assert_eq!(tree.most(asked), *values[..asked.min(37)].iter().max().unwrap());
        }
    }
}
