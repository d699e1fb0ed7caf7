//! Consequences of events, which borrow the connection until they are handled.

use wire::h2::{Event, StreamKey};

use super::stream::StreamEnd;

/// Consequence of an event for the connection, which is borrowed during the event.
pub(super) enum After {
    Nothing,
    /// The stream connection has to be served.
    Serve(u32),
    Content {
        number: u32,
        needs_service: bool,
    },
    /// Content of a stream without a stream connection.
    Unwanted(StreamKey, usize),
    Reset {
        key: StreamKey,
        end: StreamEnd,
        is_unprocessed: bool,
    },
    Writable(StreamKey),
    AllWritable,
    GoAway {
        last_stream: u32,
    },
    Settings,
    Pong(u64),
}

impl After {
    pub(super) fn served(number: u32, needs_service: bool) -> Self {
        if needs_service { Self::Serve(number) } else { Self::Nothing }
    }

    pub(super) fn of(event: Event<'_>) -> Self {
        match event {
            Event::Reset { stream: key, code, fault, is_unprocessed } => {
                let end = fault.map_or(StreamEnd::Reset(code), StreamEnd::Invalid);
                Self::Reset { key, end, is_unprocessed }
            }
            Event::StreamWritable(key) => Self::Writable(key),
            Event::ConnectionWritable => Self::AllWritable,
            Event::GoAway { last_stream, .. } => Self::GoAway { last_stream },
            Event::SettingsChanged => Self::Settings,
            Event::Pong(payload) => Self::Pong(payload),
            // The others do not occur, or are handled where their contents are borrowed.
            _ => Self::Nothing,
        }
    }
}
