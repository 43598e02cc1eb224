//! A map by name that is quick for a few names as well as for many.

use std::sync::Arc;

use hashbrown::HashMap;

/// More names than this are kept in a table; fewer are found faster one by one.
const FEW: usize = 4;

#[derive(Debug)]
pub(crate) enum ByName<V> {
    /// In place, since most maps have one.
    One((Arc<str>, V)),
    Few(Vec<(Arc<str>, V)>),
    Many(HashMap<Arc<str>, V>),
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> ByName<V> {
    #[inline(always)]
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        match self {
            Self::One((known, value)) => same(known, name).then_some(value),
            _ => self.get_of_more(name),
        }
    }

    /// Out of line, so that the one is found in line.
    #[inline(never)]
    fn get_of_more(&self, name: &str) -> Option<&V> {
        match self {
            Self::Many(many) => many.get(name),
            _ => self.few().iter().find(|(known, _)| same(known, name)).map(|(_, value)| value),
        }
    }

    /// All of them, unless there are many.
    #[inline(always)]
    pub(crate) fn few(&self) -> &[(Arc<str>, V)] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Few(few) => few,
            Self::Many(_) => &[],
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let many = if let Self::Many(many) = self { Some(many) } else { None };
        let many = many.into_iter().flat_map(HashMap::keys);
        self.few().iter().map(|(name, _)| name).chain(many).map(|name| &**name)
    }
}

impl<V: Default> ByName<V> {
    pub(crate) fn get_or_insert(&mut self, name: &Arc<str>) -> &mut V {
        let new = || (Arc::clone(name), V::default());
        if self.get(name).is_none() {
            *self = match std::mem::take(self) {
                Self::Few(none) if none.is_empty() => Self::One(new()),
                Self::One(one) => Self::Few(vec![one, new()]),
                Self::Few(few) if few.len() == FEW => Self::Many(few.into_iter().chain([new()]).collect()),
                Self::Few(few) => Self::Few(few.into_iter().chain([new()]).collect()),
                Self::Many(mut many) => {
                    many.extend([new()]);
                    Self::Many(many)
                }
            };
        }
        match self {
            Self::One((_, value)) => value,
            Self::Many(many) => many.entry(Arc::clone(name)).or_default(),
            Self::Few(few) => {
                let at = few.iter().position(|(known, _)| known == name).unwrap_or(0);
                &mut few[at].1
            }
        }
    }
}

/// Whether two texts are equal: the same as `==`, without a call for the short ones that names mostly are.
#[inline(always)]
pub(crate) fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    // Two words that overlap cover anything from one word's length to twice it.
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        (Some(a_first), Some(b_first)) if a.len() <= 16 => {
            a_first == b_first && a.last_chunk::<8>() == b.last_chunk::<8>()
        }
        (Some(_), _) => a == b,
        _ => match (a.first_chunk::<4>(), b.first_chunk::<4>()) {
            (Some(a_first), Some(b_first)) => a_first == b_first && a.last_chunk::<4>() == b.last_chunk::<4>(),
            _ => a.iter().eq(b),
        },
    }
}
