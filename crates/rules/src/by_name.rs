//! A map by name that is quick for a few names as well as for many.

use std::sync::Arc;

use hashbrown::HashMap;

/// More names than this are kept in a table; fewer are found faster one by one.
const FEW: usize = 4;

#[derive(Debug)]
pub(crate) enum ByName<V> {
    Few(Vec<(Arc<str>, V)>),
    Many(HashMap<Arc<str>, V>),
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> ByName<V> {
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        match self {
            Self::Few(few) => few.iter().find(|(known, _)| same(known, name)).map(|(_, value)| value),
            Self::Many(many) => many.get(name),
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(name, _)| &**name);
        few.chain(many.into_iter().flat_map(|many| many.keys().map(|name| &**name)))
    }
}

impl<V: Default> ByName<V> {
    pub(crate) fn get_or_insert(&mut self, name: &Arc<str>) -> &mut V {
        if let Self::Few(few) = self
            && few.len() == FEW
            && few.iter().all(|(known, _)| known != name)
        {
            *self = Self::Many(few.drain(..).collect());
        }
        match self {
            Self::Many(many) => many.entry(Arc::clone(name)).or_default(),
            Self::Few(few) => {
                let at = few.iter().position(|(known, _)| known == name).unwrap_or(few.len());
                if at == few.len() {
                    few.push((Arc::clone(name), V::default()));
                }
                &mut few[at].1
            }
        }
    }
}

/// Whether two texts are equal: the same as `==`, without a call for the short ones that keys and values mostly are.
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
