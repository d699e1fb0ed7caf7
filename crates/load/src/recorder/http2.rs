//! Counters of HTTP/2: streams that servers reset or refused, GOAWAYs, limits, and the statuses of
//! gRPC calls.

use wire::h2::ErrorCode;

use crate::plan::GrpcStatus;

/// Number of error codes with a counter: those of RFC 9113 §7, and one for all others.
pub const ERROR_CODES: usize = 15;

/// Returns the name of the error code with this counter; `OTHER` for the last one.
pub(crate) fn error_code_name(index: usize) -> &'static str {
    if index + 1 < ERROR_CODES { ErrorCode(index as u32).name() } else { "OTHER" }
}

/// Number of gRPC statuses with a counter: 0 to 16, all higher ones, and a missing one.
pub const GRPC_STATUSES: usize = 19;

/// Counters since the start of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Counters {
    /// Streams that servers reset (RST_STREAM), by error code.
    pub resets: [u64; ERROR_CODES],
    /// GOAWAY frames of servers, by error code.
    pub goaways: [u64; ERROR_CODES],
    /// Requests that were sent again on another connection, because of a GOAWAY.
    pub retried: u64,
    /// Streams that were reset because of a timeout.
    pub cancelled: u64,
    /// Connections that did not respond to a PING.
    pub pings_lost: u64,
    /// Minimum number of concurrent streams that a server allowed on a connection; `None` if there
    /// was no limit.
    pub streams_allowed: Option<u64>,
    /// Minimum initial window of a stream that a server set, of connections with bodies of requests.
    pub stream_window_bytes: Option<u64>,
    /// Maximum window of a connection that a server opened.
    pub connection_window_bytes: u64,
    /// Time that bodies of requests waited for a window of the server.
    pub window_wait_ns: u64,
    /// Finished gRPC calls by status.
    pub grpc_statuses: [u64; GRPC_STATUSES],
}

fn code_index(code: u32) -> usize {
    usize::try_from(code).map_or(ERROR_CODES - 1, |code| code.min(ERROR_CODES - 1))
}

impl Http2Counters {
    pub(crate) fn count_reset(&mut self, code: u32) {
        self.resets[code_index(code)] += 1;
    }

    pub(crate) fn count_goaway(&mut self, code: u32) {
        self.goaways[code_index(code)] += 1;
    }

    /// Notes a server's limit of concurrent streams.
    pub(crate) fn note_streams_allowed(&mut self, limit: u64) {
        self.streams_allowed = Some(self.streams_allowed.map_or(limit, |known| known.min(limit)));
    }

    /// Notes the windows that a server gives the bodies of requests.
    pub(crate) fn note_send_windows(&mut self, stream: u64, connection: u64) {
        self.stream_window_bytes = Some(self.stream_window_bytes.map_or(stream, |known| known.min(stream)));
        self.connection_window_bytes = self.connection_window_bytes.max(connection);
    }

    pub(crate) fn count_grpc_status(&mut self, status: GrpcStatus) {
        let index = match status {
            GrpcStatus::Code(code) => usize::try_from(code).map_or(17, |code| code.min(17)),
            GrpcStatus::Missing => 18,
        };
        self.grpc_statuses[index] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let add_each = |sum: &mut [u64], other: &[u64]| {
            sum.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        };
        add_each(&mut self.resets, &other.resets);
        add_each(&mut self.goaways, &other.goaways);
        add_each(&mut self.grpc_statuses, &other.grpc_statuses);
        self.retried += other.retried;
        self.cancelled += other.cancelled;
        self.pings_lost += other.pings_lost;
        self.window_wait_ns += other.window_wait_ns;
        let windows = other.stream_window_bytes.map(|stream| (stream, other.connection_window_bytes));
        windows.into_iter().for_each(|(stream, connection)| self.note_send_windows(stream, connection));
        other.streams_allowed.into_iter().for_each(|limit| self.note_streams_allowed(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_a_name_share_a_counter() {
        let mut counters = Http2Counters::default();
        [7, 8, 8, 14, 99, u32::MAX].into_iter().for_each(|code| counters.count_reset(code));
        assert_eq!((counters.resets[7], counters.resets[8], counters.resets[14]), (1, 2, 3));
        [GrpcStatus::Code(0), GrpcStatus::Code(16), GrpcStatus::Code(99), GrpcStatus::Missing]
            .into_iter()
            .for_each(|status| counters.count_grpc_status(status));
        assert_eq!([0, 16, 17, 18].map(|index| counters.grpc_statuses[index]), [1; 4]);
    }

    #[test]
    fn the_lowest_limit_of_streams_counts() {
        let mut sum = Http2Counters::default();
        sum.add(&Http2Counters::default());
        assert_eq!(sum.streams_allowed, None);
        sum.note_streams_allowed(100);
        sum.add(&Http2Counters { streams_allowed: Some(5), retried: 2, ..Http2Counters::default() });
        assert_eq!((sum.streams_allowed, sum.retried), (Some(5), 2));
    }
}
