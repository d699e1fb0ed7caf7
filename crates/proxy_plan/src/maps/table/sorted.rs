//! Sorted keys, of which a text begins or ends with one. Texts that end with a key are compared from their end.

use std::cmp::Ordering;

use super::{Conflict, Match, MatchKind, Records, TableForm};

pub(super) struct SortedIndex {
    entries: Box<[Entry]>,
}

#[derive(Clone, Copy)]
struct Entry {
    offset: u32,
    /// The longest other key that begins this one.
    parent: u32,
}

/// Parent of a key that no other one begins.
const NONE: u32 = u32::MAX;

impl SortedIndex {
    pub(super) fn build(
        records: &Records,
        offsets: &[u32],
        form: TableForm,
        conflicts: &mut Vec<Conflict>,
    ) -> Self {
        let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
        let key = |position: u32| records.key(offsets[position as usize]);
        // Positions make the order total, so that the first one of a key comes first.
        order.sort_unstable_by(|&left, &right| {
            compare(key(left), key(right), form).0.then_with(|| left.cmp(&right))
        });
        let (mut entries, mut kept): (Vec<Entry>, Vec<u32>) = (Vec::with_capacity(order.len()), Vec::new());
        for position in order {
            let offset = offsets[position as usize];
            let (key, value) = records.get(offset);
            let mut parent = entries.len().checked_sub(1).map_or(NONE, |last| last as u32);
            // The key before it is the same, begins it, or shares a beginning with it.
            while parent != NONE {
                let other = records.key(entries[parent as usize].offset);
                if compare(other, key, form).1 == other.len() {
                    break;
                }
                parent = entries[parent as usize].parent;
            }
            if parent != NONE && records.key(entries[parent as usize].offset).len() == key.len() {
                if records.get(entries[parent as usize].offset).1 != value {
                    conflicts.push(Conflict { earlier: kept[parent as usize], later: position });
                }
                continue;
            }
            entries.push(Entry { offset, parent });
            kept.push(position);
        }
        Self { entries: entries.into() }
    }

    pub(super) fn find<'t>(
        &self,
        text: &[u8],
        below: u32,
        form: TableForm,
        records: &'t Records,
    ) -> Option<Match<'t>> {
        let behind = self.position_behind(text, form, records);
        let mut entry = self.entries.get(behind.checked_sub(1)?)?;
        let (_, shared) = compare(records.key(entry.offset), text, form);
        loop {
            let (key, value) = records.get(entry.offset);
            if key.len() <= shared && key.len() < below as usize && is_boundary(key, text, form.kind) {
                return Some(Match { specificity: key.len() as u32, value });
            }
            entry = self.entries.get(entry.parent as usize)?;
        }
    }

    /// Returns the record of a key.
    pub(super) fn own_record(&self, key: &[u8], form: TableForm, records: &Records) -> Option<u32> {
        let behind = self.position_behind(key, form, records);
        let entry = self.entries.get(behind.checked_sub(1)?)?;
        (records.key(entry.offset) == key).then_some(entry.offset)
    }

    fn position_behind(&self, text: &[u8], form: TableForm, records: &Records) -> usize {
        let is_plain = !form.ignores_case && form.kind != MatchKind::Suffix;
        self.entries.partition_point(|entry| {
            let key = records.key(entry.offset);
            // The same order, many bytes at a time.
            if is_plain { key <= text } else { compare(key, text, form).0.is_le() }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.offset)
    }
}

/// Returns whether a text that begins with a key also matches it.
fn is_boundary(key: &[u8], text: &[u8], kind: MatchKind) -> bool {
    kind != MatchKind::PathPrefix
        || key.len() == text.len()
        || key.ends_with(b"/")
        || text.get(key.len()) == Some(&b'/')
}

/// Compares a key with a text. Also returns the length of their common beginning.
fn compare(key: &[u8], text: &[u8], form: TableForm) -> (Ordering, usize) {
    let length = key.len().min(text.len());
    let fold = |byte: u8| if form.ignores_case { byte.to_ascii_lowercase() } else { byte };
    let shared = match form.kind {
        MatchKind::Suffix => {
            let pairs = key.iter().rev().zip(text.iter().rev());
            pairs.take_while(|(own, other)| **own == fold(**other)).count()
        }
        _ => key.iter().zip(text).take_while(|(own, other)| **own == fold(**other)).count(),
    };
    if shared == length {
        return (key.len().cmp(&text.len()), shared);
    }
    let at = |bytes: &[u8]| match form.kind {
        MatchKind::Suffix => bytes[bytes.len() - 1 - shared],
        _ => bytes[shared],
    };
    (at(key).cmp(&fold(at(text))), shared)
}
