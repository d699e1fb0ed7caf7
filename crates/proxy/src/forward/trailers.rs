//! The fields of a request's trailer section that are forwarded. A server may merge them into the
//! fields of the head, so a field that may not pass in the head may not pass here either.

use crate::plan::{Forwarding, RouteChange, Underscores};

use super::{FieldAction, field_action};
use crate::field_names::{has_underscore, is_identity_field};

/// Returns whether a trailer field is forwarded. Hop-by-hop fields, fields that the proxy or a
/// route sets, and fields that only a trusted peer may send are not. Names with an underscore pass
/// only if the config lets them pass or the peer is trusted.
pub(crate) fn is_trailer_forwarded(
    name: &str,
    trusted: bool,
    forwarding: &Forwarding,
    changes: &[RouteChange],
) -> bool {
    let is_id = forwarding.request_id.as_ref().is_some_and(|id| id.eq_ignore_ascii_case(name));
    let is_via = name.eq_ignore_ascii_case("via");
    let allows_underscores = trusted || forwarding.underscores == Underscores::Pass;
    // From trusted peers too: the head's fields about the client are not repeated.
    !(wire::is_hop_by_hop(name) || is_identity_field(name) || is_id || is_via)
        && (allows_underscores || !has_underscore(name))
        && matches!(field_action(changes, name, true), FieldAction::Keep)
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
            RouteChange::RemoveRequestHeader("X-User".into()),
            RouteChange::SetRequestHeader("x-env".into(), "1".into()),
        ];
        let is_forwarded = |name, trusted| is_trailer_forwarded(name, trusted, &forwarding, &changes);
        for name in ["X-Forwarded-For", "x-real-ip", "connection", "X-USER", "X-Env", "x-request-id"] {
            assert!(!is_forwarded(name, false) && !is_forwarded(name, true), "{name}");
        }
        assert!(
            is_forwarded("X-Checksum", false)
                && !is_forwarded("x_user", false)
                && is_forwarded("x_user", true)
        );
    }
}
