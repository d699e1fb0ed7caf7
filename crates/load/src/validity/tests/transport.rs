//! Tests of the rules for loads over TCP in user space, with what is no objection beside each.

use record::run::UserTransport;

use super::*;

/// Returns the counts of a transport without objections, on a driver with zero-copy.
fn transport() -> UserTransport {
    let counts = serde_json::json!({
        "kind": "xdp", "interface": "eth1", "driver": "ice", "mode": "zero-copy", "mtu": 1_500, "queues": 1,
        "verifies_checksums": true, "received": 20_000, "sent": 20_000, "retransmitted": 0, "unusable": 0,
        "receive_ring_full": 0, "fill_ring_empty": 0, "dropped": 0, "transmit_ring_full": 0,
    });
    serde_json::from_value(counts).unwrap()
}

type Change = fn(&mut UserTransport);

/// Returns the reasons for a load over a changed transport, and over the kernel's TCP with the same counters.
fn reasons_over(
    change: Change,
    change_run: impl Fn(&mut RunMeasurement),
) -> [Vec<(String, ValidityLevel)>; 2] {
    let mut counts = transport();
    change(&mut counts);
    [Some(Box::new(counts)), None].map(|transport| {
        reasons(
            |m| {
                m.transport = transport;
                change_run(m);
            },
            |_| (),
        )
    })
}

/// Returns the texts of the reasons over a changed transport.
fn texts(change: Change, change_run: impl Fn(&mut RunMeasurement)) -> Vec<String> {
    let mut measured = good();
    let mut counts = transport();
    change(&mut counts);
    measured.transport = Some(Box::new(counts));
    change_run(&mut measured);
    let validity = judge(&Evidence { measured: &measured, host: host() });
    validity.reasons.into_iter().map(|reason| reason.text).collect()
}

#[test]
fn a_transport_that_lost_and_copied_nothing_is_valid() {
    assert_eq!(reasons_over(|_| (), |_| ()), [[], []]);
    let decoys: [(&str, Change); 9] = [
        ("retransmitted", |counts| counts.retransmitted = 9),
        ("unusable", |counts| counts.unusable = 9),
        ("zero_windows", |counts| counts.zero_windows = 9),
        ("handed_over", |counts| counts.handed_over = 9),
        ("restarted", |counts| counts.restarted = 9),
        ("connections_peak", |counts| counts.connections_peak = 64_000),
        ("queues", |counts| counts.queues = 4),
        ("verifies_checksums", |counts| counts.verifies_checksums = false),
        ("driver", |counts| counts.driver.clear()),
    ];
    for (name, change) in decoys {
        assert_eq!(reasons_over(change, |_| ()), [[], []], "{name}");
    }
}

#[test]
fn frames_that_any_ring_lost_are_an_objection_from_the_first_on() {
    let rings: [(&str, Change); 4] = [
        ("receive ring full 1, fill ring empty 0, transmit ring full 0, other 0", |counts| {
            counts.receive_ring_full = 1;
        }),
        ("receive ring full 0, fill ring empty 1, transmit ring full 0, other 0", |counts| {
            counts.fill_ring_empty = 1;
        }),
        ("receive ring full 0, fill ring empty 0, transmit ring full 1, other 0", |counts| {
            counts.transmit_ring_full = 1;
        }),
        ("receive ring full 0, fill ring empty 0, transmit ring full 0, other 1", |counts| {
            counts.dropped = 1
        }),
    ];
    for (part, change) in rings {
        let expected = [one_reason("xdp_frames_lost", ValidityLevel::Suspect), vec![]];
        assert_eq!(reasons_over(change, |_| ()), expected, "{part}");
        assert_eq!(texts(change, |_| ()), [format!("1 frame lost on this machine: {part}")]);
    }
    let all: Change = |counts| {
        (counts.receive_ring_full, counts.fill_ring_empty) = (1, 20);
        (counts.transmit_ring_full, counts.dropped) = (300, 4_000);
    };
    let text = &texts(all, |_| ())[0];
    assert!(text.starts_with("4321 frames lost") || text.starts_with("4,321 frames lost"), "{text}");
}

#[test]
fn each_mode_with_copies_is_an_objection_also_on_one_machine_of_several() {
    let modes: [(&str, Change); 3] = [
        ("copy", |counts| counts.mode = "copy".to_owned()),
        ("generic", |counts| counts.mode = "generic".to_owned()),
        ("zero-copy, copy", |counts| counts.mode = "zero-copy, copy".to_owned()),
    ];
    for (mode, change) in modes {
        let expected = [one_reason("xdp_copies", ValidityLevel::Suspect), vec![]];
        assert_eq!(reasons_over(change, |_| ()), expected, "{mode}");
        let text = &texts(change, |_| ())[0];
        assert!(text.contains(&format!("mode {mode} (ice has no zero-copy)")), "{text}");
    }
    let unknown: Change = |counts| {
        counts.mode = "copy".to_owned();
        counts.driver.clear();
    };
    assert!(texts(unknown, |_| ())[0].contains("(the driver has no zero-copy)"));
}

#[test]
fn bodies_above_2000_bytes_are_an_objection_in_either_direction() {
    // 10,000 responses and as many requests.
    for (body, request, expected) in [
        (0, 0, None),
        (2_000, 2_000, None),
        (2_001, 100, Some("responses have 2001 bytes on average: above 2000")),
        (100, 2_001, Some("requests have 2001 bytes on average: above 2000")),
        (
            100_000,
            5_000,
            Some("responses have 100000 bytes and requests have 5000 bytes on average: above 2000"),
        ),
    ] {
        let change = |m: &mut RunMeasurement| {
            m.counters.body_bytes = 10_000 * body;
            m.counters.bytes_out = 10_000 * request;
        };
        let reason = expected.map(|_| ("xdp_large_bodies".to_owned(), ValidityLevel::Suspect));
        assert_eq!(reasons_over(|_| (), change), [reason.into_iter().collect(), vec![]], "{body} {request}");
        let texts = texts(|_| (), change);
        assert_eq!(texts.len(), usize::from(expected.is_some()), "{texts:?}");
        assert!(texts.iter().all(|text| text.starts_with(expected.unwrap())), "{texts:?}");
    }
    // The mean counts, not the sum; and a run without a response has no mean.
    let few = |m: &mut RunMeasurement| m.counters.body_bytes = 100_000;
    assert_eq!(reasons_over(|_| (), few), [[], []]);
    let none = |m: &mut RunMeasurement| {
        (m.counters.responses, m.counters.sent, m.counters.bytes_out) = (0, 0, 0);
        m.latencies = PhaseHistograms::default();
        m.area_ns = 0;
    };
    let no_response = one_reason("no_response", ValidityLevel::Invalid);
    assert_eq!(reasons_over(|_| (), none), [no_response.clone(), no_response]);
}

#[test]
fn each_objection_stands_beside_the_others_and_does_not_need_a_long_run() {
    let all: Change = |counts| {
        counts.dropped = 1;
        counts.mode = "generic".to_owned();
    };
    let short = |m: &mut RunMeasurement| {
        m.counters.body_bytes = 10_000 * 2_001;
        m.has_complete_second = false;
    };
    let codes = |found: &[(String, ValidityLevel)]| -> Vec<String> {
        found.iter().map(|(code, _)| code.clone()).collect()
    };
    let [over_xdp, over_kernel] = reasons_over(all, short);
    let expected = ["too_short", "xdp_copies", "xdp_frames_lost", "xdp_large_bodies"];
    let mut found = codes(&over_xdp);
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(codes(&over_kernel), ["too_short"]);
}
