//! Split of the proving ground: cases that may be examined while thresholds change, and cases
//! that may only be run. Pure: a fixed seed and the name decide, so a new case moves no other. The
//! file of a case whose record was examined says so, and the case stays in the development part
//! permanently.

use serde::{Deserialize, Serialize};

/// Seed of the split. It never changes: a held-out case that moves has been read.
pub const SPLIT_SEED: u64 = 46_974;

/// Part of the proving ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CasePart {
    /// May be read while thresholds change.
    Development,
    /// May only be run.
    HeldOut,
}

impl CasePart {
    pub fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::HeldOut => "held-out",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Development, Self::HeldOut].into_iter().find(|part| part.name() == name)
    }

    #[must_use]
    pub fn for_case(seed: u64, name: &str, is_examined: bool) -> Self {
        match is_examined {
            true => Self::Development,
            false => Self::assigned(seed, name),
        }
    }

    #[must_use]
    pub fn assigned(seed: u64, name: &str) -> Self {
        match hash(seed, name) & 1 {
            0 => Self::Development,
            _ => Self::HeldOut,
        }
    }
}

/// Computes FNV-1a over seed and name, then the finalizer of SplitMix64: its lowest bit is as good
/// as any.
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
        let parts = |seed| names.iter().map(|name| CasePart::assigned(seed, name)).collect::<Vec<_>>();
        assert_eq!(parts(7), parts(7));
        assert_ne!(parts(7), parts(8));
        let held_out = parts(7).iter().filter(|part| **part == CasePart::HeldOut).count();
        assert!((70..=130).contains(&held_out), "{held_out}");
        assert_eq!(CasePart::from_name("held-out"), Some(CasePart::HeldOut));
        assert_eq!(CasePart::from_name("all"), None);
    }

    #[test]
    fn an_examined_case_is_in_the_development_part() {
        for name in ["case_1", "case_2", "case_3", "case_4", "case_5"] {
            assert_eq!(CasePart::for_case(SPLIT_SEED, name, false), CasePart::assigned(SPLIT_SEED, name));
            assert_eq!(CasePart::for_case(SPLIT_SEED, name, true), CasePart::Development);
        }
    }
}
