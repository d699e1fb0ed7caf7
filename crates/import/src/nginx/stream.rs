//! `stream` of nginx: listeners of mode tcp.

use std::rc::Rc;

use super::pool::{Destination, Upstream, add as add_pool};
use super::scope::{Scope, leave};
use super::server::listen_address;
use super::settings::Common;
use crate::directive::Directive;
use crate::document::{Section, Value};
use crate::draft::Draft;
use crate::left::Kind;

/// Adds the servers of a block `stream`.
pub(super) fn add(directives: &[Directive], draft: &mut Draft<'_>) {
    let mut upstreams = Vec::new();
    for directive in directives {
        match (directive.name(), &directive.block) {
            ("upstream", Some(inner)) => upstreams.push(Upstream::read(directive, inner, draft)),
            ("server", Some(_)) => {}
            _ => leave(directive, draft),
        }
    }
    for directive in directives.iter().filter(|directive| directive.name() == "server") {
        add_server(directive, &upstreams, draft);
    }
}

fn add_server(server: &Directive, upstreams: &[Upstream], draft: &mut Draft<'_>) {
    let (mut addresses, mut pool) = (Vec::new(), None);
    let mut origins = vec![Rc::clone(&server.origin)];
    for directive in server.inner() {
        match directive.name() {
            "listen" if directive.arguments().iter().any(|word| word == "udp") => {
                return draft.leave(Kind::NotSupported, &directive.origin, "weir forwards TCP");
            }
            "listen" => match listen_address(directive.argument(0)) {
                Some((address, _)) => addresses.push(address),
                None => draft.leave(
                    Kind::NotSupported,
                    &directive.origin,
                    "a listener has an address with a port",
                ),
            },
            "proxy_pass" => {
                let destination = Destination::parse(&format!("http://{}", directive.argument(0)));
                origins.push(Rc::clone(&directive.origin));
                pool = destination.and_then(|destination| {
                    add_pool(
                        &destination,
                        upstreams,
                        (&Scope::default(), Common::default()),
                        &directive.origin,
                        draft,
                    )
                });
                if pool.is_none() {
                    draft.leave(
                        Kind::NotSupported,
                        &directive.origin,
                        "the pool of a connection is a fixed one",
                    );
                }
            }
            _ => leave(directive, draft),
        }
    }
    let Some(pool) = pool else { return };
    if addresses.is_empty() {
        return draft.leave(Kind::Needs, &server.origin, "an address to listen on");
    }
    let name = draft.listener_name("tcp");
    let mut section = Section::named("listener", &name, origins);
    section.set("bind", Value::texts(addresses), &[]);
    section.set("mode", Value::text("tcp"), &[]);
    section.set("pool", Value::text(pool), &[]);
    draft.document.listeners.push(section);
}
