//! Tests of the parsers on captured messages, of differences, and of a sample of the own links.

use super::message::{ShortName, parse_link, parse_qdisc, parse_root_class};
use super::*;
use crate::netlink::message::testing::{for_each_corruption, parse_hex};

const VETH: &str = include_str!("captured/link_veth.hex");
const TBF: &str = include_str!("captured/qdisc_tbf.hex");
const TBF_64: &str = include_str!("captured/qdisc_tbf64.hex");
const HTB: &str = include_str!("captured/qdisc_htb.hex");
const HTB_LEAF: &str = include_str!("captured/class_htb_0.hex");
const HTB_ROOT: &str = include_str!("captured/class_htb_1.hex");

// Captured on Linux 6.18, x86-64.
#[cfg(target_endian = "little")]
#[test]
fn a_link_is_read() {
    let expected = Link {
        index: 2,
        name: ShortName::new(b"vA"),
        kind: ShortName::new(b"veth"),
        is_up: true,
        rx_packets: 1240,
        tx_packets: 1302,
        rx_bytes: 81884,
        tx_bytes: 36_917_208,
        rx_drops: 0,
        tx_drops: 0,
    };
    assert_eq!(parse_link(&parse_hex(VETH)), Some(expected));
    // Its counters begin with those of the packets: a drop and one that the device missed.
    let mut changed = parse_hex(VETH);
    let start = changed.windows(8).position(|eight| eight == 1240_u64.to_ne_bytes()).unwrap();
    for (index, value) in [(6, 1_u64), (7, 20), (15, 300)] {
        changed[start + index * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    let link = parse_link(&changed).unwrap();
    assert_eq!((link.rx_drops, link.tx_drops), (301, 20));
}

#[cfg(target_endian = "little")]
#[test]
fn a_token_bucket_is_read_with_its_rate() {
    let tbf = parse_qdisc(&parse_hex(TBF)).unwrap();
    let expected = Qdisc {
        link: 2,
        handle: 0x8001_0000,
        kind: ShortName::new(b"tbf"),
        rate_bits_per_s: Some(50e6),
        backlog_bytes: 0,
        drops: 0,
        overlimits: 3530,
    };
    assert_eq!(tbf, expected);
    // A rate above 32 bits of bytes per second has an attribute of its own.
    assert_eq!(parse_qdisc(&parse_hex(TBF_64)).unwrap().rate_bits_per_s, Some(40e9));
}

#[cfg(target_endian = "little")]
#[test]
fn the_rate_of_htb_is_that_of_its_root_class() {
    let htb = parse_qdisc(&parse_hex(HTB)).unwrap();
    assert_eq!((htb.has_classes(), htb.rate_bits_per_s), (true, None));
    assert_eq!(parse_root_class(&parse_hex(HTB_ROOT)), Some(10e6));
    assert_eq!(parse_root_class(&parse_hex(HTB_LEAF)), None);
}

/// A message about a discipline of `kind` with these options and statistics.
fn qdisc(kind: &[u8], options: &[u8], statistics: (u16, &[u8])) -> Vec<u8> {
    use crate::netlink::message::push_attribute;
    let mut body = vec![0; 20];
    push_attribute(&mut body, 1, kind);
    push_attribute(&mut body, 2, options);
    push_attribute(&mut body, statistics.0, statistics.1);
    body
}

#[test]
fn other_disciplines_with_a_rate_and_old_statistics_are_read() {
    use crate::netlink::message::push_attribute;
    let mut netem = vec![0; 24];
    push_attribute(&mut netem, 6, &[1000_u32.to_ne_bytes(), [0; 4]].concat());
    // struct tc_stats: bytes, packets, drops, overlimits, bps, pps, qlen, backlog.
    let mut old = vec![0; 40];
    for (at, value) in [(12, 3_u32), (16, 4), (32, 5)] {
        old[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let read = parse_qdisc(&qdisc(b"netem\0", &netem, (3, &old))).unwrap();
    assert_eq!(read.rate_bits_per_s, Some(8000.0));
    assert_eq!((read.drops, read.overlimits, read.backlog_bytes), (3, 4, 5));
    let mut cake = vec![];
    push_attribute(&mut cake, 2, &0_u64.to_ne_bytes());
    let read = parse_qdisc(&qdisc(b"cake\0", &cake, (9, &[]))).unwrap();
    assert_eq!((read.rate_bits_per_s, read.drops), (None, 0));
    let read = parse_qdisc(&qdisc(b"fq\0", &[], (9, &[]))).unwrap();
    assert_eq!(read.rate_bits_per_s, None);
}

#[test]
fn messages_that_are_cut_or_garbage_are_never_a_panic() {
    for text in [VETH, TBF, TBF_64, HTB, HTB_LEAF, HTB_ROOT] {
        for_each_corruption(&parse_hex(text), |body| {
            parse_link(body);
            parse_qdisc(body);
            parse_root_class(body);
        });
    }
    assert_eq!((parse_link(&[]), parse_qdisc(&[0; 20])), (None, None));
}

#[test]
fn rates_between_two_samples() {
    let queue = |kind: &[u8], handle, backlog_bytes, overlimits| Qdisc {
        kind: ShortName::new(kind),
        handle,
        backlog_bytes,
        overlimits,
        ..Qdisc::default()
    };
    let names: Arc<[String]> = ["kicks", "drops", "resets"].map(String::from).into();
    let at = |rx_bytes, tx_drops, qdiscs: &[Qdisc], values: &[u64]| LinkCounters {
        link: Link { name: ShortName::new(b"eth0"), rx_bytes, tx_drops, ..Link::default() },
        speed_bits_per_s: Some(1e9),
        qdiscs: qdiscs.to_vec(),
        driver: DriverCounters { names: Arc::clone(&names), values: values.to_vec() },
    };
    let idle = queue(b"fq_codel", 1, 0, 7);
    let earlier = at(1000, 9, &[queue(b"tbf", 2, 0, 10), idle], &[5, 5, 5]);
    let later = at(3000, 4, &[queue(b"tbf", 2, 44, 30), idle], &[7, 5, 0]);
    let between = later.since(&earlier, 2.0);
    assert_eq!((between.name.as_str(), between.speed_bits_per_s), ("eth0", Some(1e9)));
    // A counter that ran backwards was reset.
    assert_eq!((between.rx_bytes_per_s, between.tx_drops_per_s), (1000.0, 0.0));
    assert_eq!(between.driver, [("kicks".to_owned(), 1.0)].into());
    assert_eq!(between.queues.len(), 1);
    let tbf = &between.queues[0];
    assert_eq!((tbf.backlog_bytes, tbf.overlimits_per_s), (44, 10.0));
    // Other counters than before yield nothing, and no time yields no rate.
    let other = LinkCounters { driver: DriverCounters::default(), ..earlier.clone() };
    assert!(later.since(&other, 2.0).driver.is_empty());
    assert_eq!(later.since(&earlier, 0.0).rx_bytes_per_s, 0.0);
}

#[test]
fn lo_is_seen_live() {
    let mut links = match Links::open(None) {
        Ok(links) => links,
        Err(error) => return test_needs::skip(test_needs::KERNEL, error),
    };
    let earlier: Vec<LinkCounters> = links.sample().unwrap().to_vec();
    let now = links.sample().unwrap();
    let lo = now.iter().find(|link| link.name() == "lo").unwrap();
    let before = earlier.iter().find(|link| link.index() == lo.index()).unwrap();
    let between = lo.since(before, 1.0);
    assert_eq!((between.name.as_str(), between.speed_bits_per_s), ("lo", None));
    assert!(between.rx_bytes_per_s >= 0.0);
}
