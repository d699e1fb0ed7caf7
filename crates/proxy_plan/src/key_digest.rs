//! Digests of keys, the same in every process and on every machine. Pure.

/// Computes a digest of bytes that is the same everywhere (FNV-1a, mixed).
#[inline]
pub fn digest(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

/// Makes each output bit depend on all input bits (the finalizer of `SplitMix64`).
#[inline]
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Draws the number of a server or a pool for a key and a weight. The number is exponentially distributed, so that
/// the probability to be the smallest is proportional to the weight.
#[inline]
pub fn rendezvous_number(key: u64, name_digest: u64, weight: u32) -> f64 {
    let bits = mix(key ^ name_digest) >> 11;
    // Above 0 and below 1: 53 bits are what a float holds exactly.
    let unit = (bits as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(weight)
}
