//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use crate::coordinator::AgentSecond;
use crate::message::{AgentCommand, AgentReport, LiveSecond, Pong, decode};

/// Decodes a message of any kind: an error is printable and short. `true`: it was a message.
///
/// # Panics
/// The property does not hold.
pub fn message(bytes: &[u8]) -> bool {
    let results = [
        decode::<AgentCommand>(bytes).map(drop),
        decode::<AgentReport>(bytes).map(drop),
        decode::<Pong>(bytes).map(drop),
        decode::<LiveSecond>(bytes).map(|second| drop(AgentSecond::from(second))),
    ];
    for result in &results {
        let text = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(text.len() < 2_000 && !text.contains(char::is_control), "{text:?}");
    }
    results.iter().any(Result::is_ok)
}
