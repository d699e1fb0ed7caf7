//! Which fields of a request's trailer section go on to a server. A server may merge them into the
//! fields of the head, so nothing passes there that would not pass in the head.

use crate::plan::{Change, Forwarding, Underscores};

use super::{Verdict, has_underscore, is_identity, judge};

/// Whether a trailer field is forwarded: none that is for one hop, that the proxy or a route decides,
/// or that only a trusted peer may send; with an underscore only where all such fields pass.
pub(crate) fn trailer_goes_on(
    name: &str,
    trusted: bool,
    forwarding: &Forwarding,
    changes: &[Change],
) -> bool {
    let is_id = forwarding.request_id.as_ref().is_some_and(|id| id.eq_ignore_ascii_case(name));
    let is_via = name.eq_ignore_ascii_case("via");
    let underscores = trusted || forwarding.underscores == Underscores::Pass;
    // From trusted peers too: what the head says of the client is not said twice.
    !(wire::is_hop_by_hop(name) || is_identity(name) || is_id || is_via)
        && (underscores || !has_underscore(name))
        && matches!(judge(changes, name, true), Verdict::Keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_brings_nothing_that_the_head_may_not() {
        let forwarding = Forwarding {
            x_forwarded: true,
            only_if_none: false,
            forwarded: false,
            via: None,
            request_id: Some("X-Request-Id".into()),
            underscores: Underscores::Drop,
        };
        let changes = [
            Change::RemoveRequestHeader("X-User".into()),
            Change::SetRequestHeader("x-env".into(), "1".into()),
        ];
        let goes_on = |name, trusted| trailer_goes_on(name, trusted, &forwarding, &changes);
        for name in
            ["X-Forwarded-For", "x-real-ip", "connection", "X-USER", "X-Env", "x-request-id"]
        {
            assert!(!goes_on(name, false) && !goes_on(name, true), "{name}");
        }
        assert!(
            goes_on("X-Checksum", false) && !goes_on("x_user", false) && goes_on("x_user", true)
        );
    }
}
