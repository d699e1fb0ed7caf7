//! Table of values by the slots of their streams.

use super::StreamKey;

pub trait OnStream {
    fn stream(&self) -> StreamKey;
}

/// Values of the open streams of one connection. A stream whose slot is used by another one is not in
/// the table.
#[derive(Debug)]
pub struct StreamTable<T> {
    slots: Vec<Option<T>>,
    count: usize,
}

impl<T> Default for StreamTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), count: 0 }
    }
}

impl<T: OnStream> StreamTable<T> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub fn insert(&mut self, value: T) {
        let slot = value.stream().slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.count += usize::from(self.slots[slot].is_none());
        self.slots[slot] = Some(value);
    }

    #[inline]
    pub fn get(&self, stream: StreamKey) -> Option<&T> {
        let value = self.slots.get(stream.slot as usize)?.as_ref();
        value.filter(|value| value.stream().id == stream.id)
    }

    #[inline]
    pub fn get_mut(&mut self, stream: StreamKey) -> Option<&mut T> {
        let value = self.slots.get_mut(stream.slot as usize)?.as_mut();
        value.filter(|value| value.stream().id == stream.id)
    }

    #[inline]
    pub fn remove(&mut self, stream: StreamKey) -> Option<T> {
        self.get(stream)?;
        self.count -= 1;
        self.slots[stream.slot as usize].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.count = 0;
        std::mem::take(&mut self.slots).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OnStream for StreamKey {
        fn stream(&self) -> StreamKey {
            *self
        }
    }

    #[test]
    fn a_slot_belongs_to_one_stream_at_a_time() {
        let (old, new) = (StreamKey { slot: 2, id: 1 }, StreamKey { slot: 2, id: 7 });
        let mut table = StreamTable::default();
        table.insert(old);
        assert_eq!((table.len(), table.get(old), table.get(new)), (1, Some(&old), None));
        assert_eq!(table.remove(new), None);
        table.insert(new);
        assert_eq!((table.len(), table.get(old), table.iter().count()), (1, None, 1));
        assert_eq!(table.get_mut(new), Some(&mut { new }));
        assert_eq!(table.remove(new), Some(new));
        assert!(table.is_empty() && table.remove(new).is_none());
        table.insert(old);
        assert_eq!(table.drain().collect::<Vec<_>>(), [old]);
        assert!(table.is_empty());
    }
}
