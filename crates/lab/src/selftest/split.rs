//! The split of the proving ground: cases that may be read while thresholds change, and cases that may
//! only be run. Pure: a fixed seed and the name decide, so a new case moves no other.

use serde::{Deserialize, Serialize};

/// The seed of the split. It never changes: a held-out case that moves has been read.
pub const SPLIT_SEED: u64 = 46_974;

/// A part of the proving ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// May be read while thresholds change.
    Development,
    /// May only be run.
    HeldOut,
}

impl Part {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::HeldOut => "held-out",
        }
    }

    /// The part of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Development, Self::HeldOut].into_iter().find(|part| part.name() == name)
    }

    /// The part of the case with this name.
    #[must_use]
    pub fn of(seed: u64, name: &str) -> Self {
        match hash(seed, name) & 1 {
            0 => Self::Development,
            _ => Self::HeldOut,
        }
    }
}

/// FNV-1a over seed and name, then the finalizer of SplitMix64: its lowest bit is as good as any.
fn hash(seed: u64, name: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in seed.to_le_bytes().into_iter().chain(name.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_name_alone_decide() {
        let names: Vec<String> = (0..200).map(|number| format!("case_{number}")).collect();
        let parts = |seed| names.iter().map(|name| Part::of(seed, name)).collect::<Vec<_>>();
        assert_eq!(parts(7), parts(7));
        assert_ne!(parts(7), parts(8));
        let held_out = parts(7).iter().filter(|part| **part == Part::HeldOut).count();
        assert!((70..=130).contains(&held_out), "{held_out}");
        assert_eq!(Part::named("held-out"), Some(Part::HeldOut));
        assert_eq!(Part::named("all"), None);
    }
}
