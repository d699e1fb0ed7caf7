//! One case for each statement of the timers that the model's random clients do not depend on: without the
//! statement, the case fails.

use super::*;

const MS: u64 = 1_000_000;
const RULE: ProgressRule = ProgressRule { interval_ns: 4_000 * MS, bytes_min: 4_096 };
const TIMEOUTS: H2Timeouts = H2Timeouts { head_ns: 1_000 * MS, idle_ns: 3_000 * MS, write: RULE };
const BUSY: H2Load = H2Load { has_streams: true, has_unsent: true };
const IDLE: H2Load = H2Load { has_streams: false, has_unsent: false };
/// Output that the client has acknowledged.
const NOTHING_SENT: OutputProgress = OutputProgress {
    queued_bytes: 0,
    written_bytes: 0,
    confirmed_bytes: 0,
    control_bytes: 0,
    unacked_bytes: 0,
};
/// Content whose stream has no window, although the client has all that was sent.
const STARVED: StreamBacklog =
    StreamBacklog { sent_bytes: 0, unsent_bytes: 100_000, window_bytes: 0, is_delivered: true };
/// Content that the stream's window allows.
const WAITING: StreamBacklog = StreamBacklog { window_bytes: 100_000, ..STARVED };

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::from_ns((10_000 + ms) * MS)
}

/// Checks a connection with waiting streams each 500 ms for 20 s. Returns the time at which it stalls.
fn stalled_at(streams: u64, output: impl Fn(u64) -> OutputProgress) -> Option<u64> {
    let mut timers = H2Timers::new(at(0));
    (0..20_000).step_by(500).find(|ms| {
        let _ = timers.update(&TIMEOUTS, BUSY, at(*ms));
        let mut check = WriteCheck::new(&TIMEOUTS, output(*ms), at(*ms));
        for _ in 0..streams {
            let _ = check.check_stream(&mut ProgressTimer::default(), WAITING);
        }
        timers.is_connection_stalled(&check, true)
    })
}

/// Checks one stream each 500 ms for 20 s. Returns the time at which it stalls.
fn stream_stalled_at(backlog: impl Fn(u64) -> StreamBacklog) -> Option<u64> {
    let mut timer = ProgressTimer::default();
    (0..20_000).step_by(500).find(|ms| {
        let mut check = WriteCheck::new(&TIMEOUTS, NOTHING_SENT, at(*ms));
        check.check_stream(&mut timer, backlog(*ms)) == StreamWait::Stalled
    })
}

#[test]
fn answers_to_frames_of_the_client_are_no_progress() {
    let only_pings = |ms| {
        let bytes = ms / 500 * 40 * control_bytes(0, 17);
        OutputProgress { confirmed_bytes: bytes, control_bytes: bytes, ..NOTHING_SENT }
    };
    assert_eq!(stalled_at(1, only_pings), Some(4_000));
    let content = |ms| OutputProgress { confirmed_bytes: 2 * ms, ..NOTHING_SENT };
    assert_eq!(stalled_at(1, content), None);
    assert_eq!(control_bytes(10, 27), 17 + 29);
    assert_eq!(control_bytes(10, 10), 0);
}

#[test]
fn bytes_that_only_the_kernel_has_are_no_progress() {
    let unread = |ms| OutputProgress { queued_bytes: 10 * ms, written_bytes: 10 * ms, ..NOTHING_SENT };
    assert_eq!(stalled_at(1, unread), Some(4_000));
}

#[test]
fn more_streams_need_more_progress_up_to_a_limit() {
    let one_stream = |ms| OutputProgress { confirmed_bytes: ms / 4_000 * 4_096, ..NOTHING_SENT };
    assert_eq!(stalled_at(1, one_stream), None);
    assert_eq!(stalled_at(2, one_stream), Some(4_000));
    let sixteen_streams = |ms| OutputProgress { confirmed_bytes: ms / 4_000 * 65_536, ..NOTHING_SENT };
    assert_eq!(stalled_at(100, sixteen_streams), None);
}

#[test]
fn continuations_prolong_no_head() {
    let mut timers = H2Timers::new(at(0));
    for ms in (0..1_000).step_by(100) {
        timers.note_input(20, false, Some(1), at(ms));
        assert_eq!(timers.expired(&TIMEOUTS, at(ms)), None, "{ms}");
    }
    assert_eq!(timers.expired(&TIMEOUTS, at(1_000)), Some(H2Timeout::Head));
}

#[test]
fn frames_that_end_in_time_are_not_taken_for_one() {
    let mut timers = H2Timers::new(at(0));
    let _ = timers.update(&TIMEOUTS, BUSY, at(0));
    for ms in (0..10_000).step_by(100) {
        timers.note_input(20, true, None, at(ms));
        assert_eq!(timers.expired(&TIMEOUTS, at(ms)), None, "{ms}");
    }
    timers.note_input(0, true, None, at(10_800));
    assert_eq!(timers.expired(&TIMEOUTS, at(10_900)), Some(H2Timeout::Head));
}

#[test]
fn a_window_byte_by_byte_is_no_progress() {
    let bytewise = |ms| StreamBacklog { sent_bytes: ms / 500, window_bytes: 1, ..STARVED };
    assert_eq!(stream_stalled_at(bytewise), Some(4_000));
    let slow = |ms| StreamBacklog { sent_bytes: ms * 2, window_bytes: 1, ..STARVED };
    assert_eq!(stream_stalled_at(slow), None);
}

#[test]
fn a_stream_that_waited_for_the_connection_has_a_complete_interval() {
    let turns = |ms| if ms < 10_000 { WAITING } else { STARVED };
    assert_eq!(stream_stalled_at(turns), Some(9_500 + 4_000));
    let pauses = |ms| if ms < 10_000 { StreamBacklog { unsent_bytes: 0, ..STARVED } } else { STARVED };
    assert_eq!(stream_stalled_at(pauses), Some(10_000 + 4_000));
    let begins_again = |ms| match ms {
        2_000..10_000 => StreamBacklog { unsent_bytes: 0, ..STARVED },
        _ => STARVED,
    };
    assert_eq!(stream_stalled_at(begins_again), Some(10_000 + 4_000));
}

#[test]
fn output_of_other_streams_does_not_hide_a_closed_window() {
    let output =
        OutputProgress { queued_bytes: 5_000, written_bytes: 4_000, unacked_bytes: 1_000, ..NOTHING_SENT };
    let check = WriteCheck::new(&TIMEOUTS, output, at(0));
    assert!(check.is_delivered(3_000));
    assert!(!check.is_delivered(3_001));
}

#[test]
fn a_connection_that_waited_for_content_has_a_complete_interval() {
    let mut timers = H2Timers::new(at(0));
    let _ = timers.update(&TIMEOUTS, BUSY, at(0));
    let check = |timers: &mut H2Timers, backlog, ms| {
        let mut check = WriteCheck::new(&TIMEOUTS, NOTHING_SENT, at(ms));
        let _ = check.check_stream(&mut ProgressTimer::default(), backlog);
        timers.is_connection_stalled(&check, false)
    };
    assert!(!check(&mut timers, WAITING, 500));
    assert!(!check(&mut timers, StreamBacklog { unsent_bytes: 0, ..STARVED }, 1_000));
    assert!(!check(&mut timers, WAITING, 9_000), "the origin was slow, not the client");
    assert!(check(&mut timers, WAITING, 13_000));
}

#[test]
fn the_next_request_has_a_complete_interval() {
    let mut timers = H2Timers::new(at(0));
    let _ = timers.update(&TIMEOUTS, BUSY, at(0));
    let mut check = WriteCheck::new(&TIMEOUTS, NOTHING_SENT, at(500));
    let _ = check.check_stream(&mut ProgressTimer::default(), WAITING);
    assert!(!timers.is_connection_stalled(&check, true));
    let _ = timers.update(&TIMEOUTS, IDLE, at(1_000));
    assert!(!timers.is_check_due(at(2_900)));
    let _ = timers.update(&TIMEOUTS, BUSY, at(6_000));
    let mut check = WriteCheck::new(&TIMEOUTS, NOTHING_SENT, at(6_500));
    let _ = check.check_stream(&mut ProgressTimer::default(), WAITING);
    assert!(!timers.is_connection_stalled(&check, true), "the client owed nothing between the requests");
}

#[test]
fn a_request_that_ends_at_once_prolongs_the_idle_time() {
    let mut timers = H2Timers::new(at(0));
    let _ = timers.update(&TIMEOUTS, IDLE, at(0));
    timers.note_request(at(2_000));
    let _ = timers.update(&TIMEOUTS, IDLE, at(2_000));
    assert_eq!(timers.expired(&TIMEOUTS, at(4_900)), None);
    assert_eq!(timers.expired(&TIMEOUTS, at(5_000)), Some(H2Timeout::Idle));
}
