//! The parsers on captured messages, differences, and a look at links of our own.

use super::*;

#[test]
fn lo_is_seen_live() {
    let mut links = match Links::open(None) {
        Ok(links) => links,
        Err(error) => return println!("skipped: {error}"),
    };
    let earlier: Vec<LinkCounters> = links.sample().unwrap().to_vec();
    let now = links.sample().unwrap();
    let lo = now.iter().find(|link| link.name() == "lo").unwrap();
    let before = earlier.iter().find(|link| link.index() == lo.index()).unwrap();
    let between = lo.since(before, 1.0);
    assert_eq!((between.name.as_str(), between.speed_bits_per_s), ("lo", None));
    assert!(between.rx_bytes_per_s >= 0.0);
}
