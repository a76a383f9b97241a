//! An ordered map that is a sorted list.
//!
//! The maps here have a few entries, or a few hundred, and new keys mostly come last. A list is as fast for them, and a tenth
//! of the code that each `BTreeMap` is.

use std::borrow::Borrow;

/// Entries by key, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<K, V>(Vec<(K, V)>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl<K: Ord, V> Map<K, V> {
    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The value of `key`, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// Gives `key` this value, in place of any that it had.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => {
                if let Some(entry) = self.0.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// Takes out what does not hold.
    pub fn retain(&mut self, mut holds: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| holds(key, value));
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Every value, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Every value after that of `key`.
    pub fn values_after_mut(&mut self, key: &K) -> impl Iterator<Item = &mut V>
    where
        K: Ord,
    {
        let first = self.0.partition_point(|(other, _)| other <= key);
        self.0.iter_mut().skip(first).map(|(_, value)| value)
    }

    /// Every value.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_does_what_a_tree_does(steps in prop::collection::vec((0_u8..4, 0_u32..8, any::<u32>()), 0..50)) {
            let (mut map, mut tree) = (Map::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.remove(&key), tree.remove(&key)),
                    1 => {
                        map.retain(|_, kept| *kept > value);
                        tree.retain(|_, kept| *kept > value);
                    }
                    _ => {
                        map.insert(key, value);
                        tree.insert(key, value);
                    }
                }
                prop_assert!(map.iter().eq(tree.iter()) && map.values().eq(tree.values()));
                prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.get_mut(&key), tree.get_mut(&key));
            }
        }
    }
}
