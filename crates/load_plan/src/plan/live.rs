//! Plan of a load over WebSocket, or of event streams: its flags, and the flags that it cannot have.

use std::sync::Arc;

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::parse_size;
use serde::Serialize;

use super::parse::{FlagReader, LoadFlags};

/// Exchange of messages over WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WebSocketMode {
    /// The server returns each message, which has a number.
    #[default]
    Echo,
    /// Any message of the server is the reply to the oldest message without one.
    Reply,
    /// The server sends messages by itself.
    Push,
}

/// Settings of a load over WebSocket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebSocketPlan {
    /// Exchange of messages.
    pub mode: WebSocketMode,
    /// True if messages are binary.
    pub binary: bool,
    /// Length of a message, with its number.
    pub message_bytes: u64,
    /// Message; in the mode `echo` without its number, which is in front of it.
    #[serde(skip)]
    pub message: Arc<[u8]>,
}

/// Length of the number of a message: hexadecimal digits.
pub const NUMBER_BYTES: usize = 16;
/// Default length of a message.
const MESSAGE_BYTES_DEFAULT: u64 = 64;
/// Maximum length of a message, in both directions, and of an event.
pub const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Messages in flight on each connection of an open loop without `--pipeline`.
pub(super) const OPEN_LOOP_DEPTH: u64 = 1024;

impl WebSocketMode {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "echo" => Ok(Self::Echo),
            "reply" => Ok(Self::Reply),
            "push" => Ok(Self::Push),
            _ => Err(invalid_value!("'{text}' is none of echo, reply and push")),
        }
    }

    /// Returns the name, as in the flag.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Reply => "reply",
            Self::Push => "push",
        }
    }
}

impl LoadFlags {
    /// Returns whether a URL has a scheme of WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.urls.iter().any(|url| url.starts_with("ws://") || url.starts_with("wss://"))
    }
}

/// Parses the settings of WebSocket; `None` for a load over HTTP. Checks the flags of event streams, too.
pub(super) fn parse_live(text: &LoadFlags, body: &[u8], reader: &mut FlagReader) -> Option<WebSocketPlan> {
    let is_websocket = text.is_websocket();
    let own = [
        ("--ws", text.ws.is_some()),
        ("--message-size", text.message_size.is_some()),
        ("--binary", text.binary),
    ];
    if !is_websocket {
        for (flag, _) in own.iter().filter(|(_, is_given)| *is_given) {
            reader.add_problem(
                flag,
                "only a load over WebSocket has messages: write ws:// or wss:// in the URL",
            );
        }
        if text.sse {
            reject_flags(text, "--sse", true, reader);
        }
        return None;
    }
    let mode = WebSocketMode::default();
    let mode = match &text.ws {
        Some(mode_text) => WebSocketMode::parse(mode_text).unwrap_or_else(|why| {
            reader.add_problem("--ws", why);
            mode
        }),
        None => mode,
    };
    if text.sse {
        reader.add_problem(
            "--sse",
            "an event stream has an http:// or https:// URL: remove --sse or change the URL",
        );
    }
    if !text.urls.iter().all(|url| url.starts_with("ws")) {
        reader.add_problem("URL", "WebSocket and HTTP cannot be mixed in one load: start two loads");
    }
    reject_flags(text, "a ws:// URL", mode == WebSocketMode::Push, reader);
    let message = message(text, mode, body, reader);
    if !text.binary && std::str::from_utf8(&message).is_err() {
        reader.add_problem("--data", "a text message is UTF-8: add --binary");
    }
    let number_bytes = if mode == WebSocketMode::Echo { NUMBER_BYTES as u64 } else { 0 };
    let message_bytes = message.len() as u64 + number_bytes;
    if message_bytes > MESSAGE_BYTES_MAX {
        reader.add_problem("--data", format!("a message has at most {MESSAGE_BYTES_MAX} bytes"));
    }
    Some(WebSocketPlan { mode, binary: text.binary, message_bytes, message })
}

/// Returns the message without its number.
fn message(text: &LoadFlags, mode: WebSocketMode, body: &[u8], reader: &mut FlagReader) -> Arc<[u8]> {
    let number_bytes = if mode == WebSocketMode::Echo { NUMBER_BYTES as u64 } else { 0 };
    let bytes = match &text.message_size {
        None if !body.is_empty() || mode == WebSocketMode::Push => return body.into(),
        None => MESSAGE_BYTES_DEFAULT,
        Some(_) if !body.is_empty() => {
            reader.add_problem("--message-size", "--data sets the message: remove one of them");
            return body.into();
        }
        Some(_) if mode == WebSocketMode::Push => {
            reader.add_problem("--message-size", "with --ws push the server sends the messages: remove it");
            return body.into();
        }
        Some(size) => match parse_size(size) {
            Ok(bytes) if (number_bytes..=MESSAGE_BYTES_MAX).contains(&bytes) => bytes,
            Ok(bytes) => {
                let why = format!("{bytes} is not within {number_bytes} to {MESSAGE_BYTES_MAX} bytes");
                reader.add_problem("--message-size", why);
                return body.into();
            }
            Err(why) => {
                reader.add_problem("--message-size", why);
                return body.into();
            }
        },
    };
    // At most the maximum, so it fits.
    (b'a'..=b'z').cycle().take((bytes - number_bytes) as usize).collect()
}

/// Reports the flags that do not fit. `is_push` is true if the server sends by itself.
fn reject_flags(text: &LoadFlags, cause: &str, is_push: bool, reader: &mut FlagReader) {
    let expect = &text.expect;
    let http_flags = [
        ("--grpc", text.http.grpc),
        ("--mix", text.http.mix.is_some()),
        ("--method", text.method.is_some() && text.is_websocket()),
        ("--targets", !text.requests_of_files.is_empty()),
        ("--replay", text.replay.is_some()),
        ("--values", text.values.is_some()),
        ("--cookies", text.cookies),
        ("--capture", !text.captures.is_empty()),
        ("--expect-status", expect.status.is_some()),
        ("--expect-bytes", expect.bytes.is_some()),
        ("--expect-hash", expect.hash.is_some()),
        ("--expect-body", expect.body.is_some()),
        ("--expect-header", !expect.headers.is_empty()),
    ];
    if text.http.streams.is_some() {
        let why =
            format!("with {cause} each connection has one stream: set their number with -c and remove it");
        reader.add_problem("--streams", why);
    }
    for (flag, _) in http_flags.iter().filter(|(_, is_given)| *is_given) {
        reader.add_problem(flag, format!("it does not apply to {cause}: remove it"));
    }
    if !is_push {
        return;
    }
    let cause = if text.sse { "--sse" } else { "--ws push" };
    let pace_flags = [
        ("--rate", text.rate.is_some()),
        ("--requests", text.requests.is_some()),
        ("--stages", text.stages.is_some()),
        ("--think", text.think.is_some()),
        ("--pipeline", text.pipeline.is_some()),
        ("--requests-per-connection", text.requests_per_connection.is_some()),
    ];
    for (flag, _) in pace_flags.iter().filter(|(_, is_given)| *is_given) {
        let why = format!(
            "with {cause} the server sets the pace: set subscriptions with -c, their start with --ramp and the end \
             with -d"
        );
        reader.add_problem(flag, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RunPlan;

    fn parse(change: impl FnOnce(&mut LoadFlags)) -> Result<RunPlan, Vec<String>> {
        let mut text = LoadFlags { urls: vec!["ws://127.0.0.1:1/x".to_owned()], ..LoadFlags::default() };
        change(&mut text);
        let parsed = RunPlan::parse(&text, 4);
        parsed.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn messages_have_their_length() {
        let plan = parse(|_| ()).unwrap();
        assert_eq!((plan.websocket.unwrap().message_bytes, plan.pipeline), (64, 1));
        let plan =
            parse(|text| (text.message_size, text.rate) = (Some("1k".into()), Some("9".into()))).unwrap();
        let websocket = plan.websocket.unwrap();
        assert_eq!((websocket.message_bytes, websocket.message.len(), plan.pipeline), (1024, 1008, 1024));
        let plan = parse(|text| (text.data, text.ws) = (Some("hi".into()), Some("reply".into()))).unwrap();
        assert_eq!(&*plan.websocket.unwrap().message, b"hi");
        assert_eq!((plan.requests[0].method.as_str(), plan.requests[0].body_bytes), ("GET", 0));
    }

    #[test]
    fn all_flags_that_do_not_fit_are_named_at_once() {
        let problems = parse(|text| {
            text.ws = Some("push".into());
            text.rate = Some("5".into());
            text.cookies = true;
            text.expect.status = Some("200".into());
        });
        let problems = problems.unwrap_err().join("\n");
        assert!(
            ["--rate", "--cookies", "--expect-status"].iter().all(|flag| problems.contains(flag)),
            "{problems}"
        );
        assert!(problems.contains("with --ws push the server sets the pace"), "{problems}");
        let http_result = parse(|text| {
            text.urls = vec!["http://a/".to_owned()];
            text.binary = true;
        });
        assert!(http_result.unwrap_err().join("\n").contains("write ws://"));
        assert!(parse(|text| text.message_size = Some("15".into())).is_err());
        assert!(parse(|text| text.urls.push("http://a/".to_owned())).is_err());
        assert!(parse(|text| text.sse = true).is_err());
    }
}
