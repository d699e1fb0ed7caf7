//! The page that an operator gave for maintenance, in place of the error page for 503.

use std::borrow::Cow;
use std::io::Write as _;

use rt::clock::unix_ns;

use super::finish::OwnResponse;
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::Core;
use crate::exchange_state::Exchange;
use crate::plan::{Action, Fact, PoolId, Text, Variable};
use crate::pool::AdminState;
use crate::route::values::append_time;
use crate::template::{Escape, Values};

impl Exchange {
    /// Responds with the page of an operator if a pool in maintenance is the reason for the rejection. Returns false
    /// if there is none.
    #[cold]
    pub(super) fn write_maintenance_page(
        &mut self,
        core: &Core,
        client: &ClientStream,
        status: u16,
        fields: &[(&str, &[u8])],
    ) -> bool {
        let Some(page) = core.maintenance_page() else { return false };
        let Some(generation) = self.generation.clone() else { return false };
        // Rules of a route may respond with this status, too.
        if self.outcome.end.status() != status || !self.is_in_maintenance(&generation) {
            return false;
        }
        let content_type = page.form.content_type();
        let body = match &page.text {
            Text::Literal(text) => Cow::Borrowed(text.as_bytes()),
            Text::Template(template) => {
                let values = PageValues { exchange: self, generation: &generation, client, status };
                let mut out = Vec::new();
                if template.render(&values, Escape::from_content_type(content_type), &mut out).is_err() {
                    core.count_long_text();
                    return false;
                }
                Cow::Owned(out)
            }
        };
        self.respond(core, client, &OwnResponse { status, content_type, body: &body, fields });
        true
    }

    /// Returns whether all pools of the request are in maintenance: the chosen one, or those of its route.
    fn is_in_maintenance(&self, generation: &ConfigGeneration) -> bool {
        let is_in = |pool: PoolId| generation.pools[pool].operator_state() == AdminState::Maintenance;
        if let Some(pool) = self.outcome.pool {
            return is_in(pool);
        }
        match self.outcome.route.map(|route| &generation.plan.routes[route].action) {
            Some(Action::Forward(pool)) => is_in(*pool),
            Some(Action::Split(split)) => split.shares.iter().all(|share| is_in(share.pool)),
            _ => false,
        }
    }
}

/// Values that are known of each request, whatever its route keeps.
struct PageValues<'a> {
    exchange: &'a Exchange,
    generation: &'a ConfigGeneration,
    client: &'a ClientStream,
    status: u16,
}

impl Values for PageValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let (plan, outcome) = (&self.generation.plan, &self.exchange.outcome);
        let Variable::Fact(fact) = variable else { return };
        match fact {
            Fact::Status => out.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes()),
            Fact::Reason => out.extend_from_slice(wire::encode::reason(self.status).as_bytes()),
            Fact::Method => out.extend_from_slice(outcome.method()),
            // Writing to a Vec cannot fail.
            Fact::Source => drop(self.client.peer.address.map(|address| write!(out, "{address}"))),
            Fact::Listener => {
                let listener = plan.listeners.get(self.exchange.listener);
                out.extend_from_slice(listener.map_or(b"", |listener| listener.name.as_bytes()));
            }
            Fact::Route => {
                out.extend_from_slice(outcome.route.map_or(b"", |route| plan.routes[route].name.as_bytes()));
            }
            Fact::Pool => {
                out.extend_from_slice(outcome.pool.map_or(b"", |pool| plan.pools[pool].name.as_bytes()));
            }
            Fact::Time | Fact::TimeUnix | Fact::TimeHttp => append_time(*fact, unix_ns(), out),
            _ => {}
        }
    }

    fn note_overflow(&self) {}
}
