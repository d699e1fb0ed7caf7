//! Changes of the fields of requests and responses.

use std::rc::Rc;

use super::phases::Converter;
use super::pool::Destination;
use super::scope::{AddedField, Scope};
use super::server::is_client_address;
use super::variables::implied;
use crate::document::Origin;
use crate::draft::is_changeable;
use crate::left::Kind;
use crate::rules::{Change, Condition, Rule, StatusField};
use crate::text::Template;

/// Statuses whose responses have the fields of `add_header` and `expires`.
const SUCCESSES: &str = "200,201,204,206,301-304,307,308";

impl Converter<'_, '_> {
    /// Returns the changes of fields and contents of responses.
    pub(super) fn response_changes(&mut self, scope: &Scope) -> Vec<Rule> {
        let mut rules = self.page_rules(scope);
        if let Some((value, origin)) = &scope.expires {
            let text = Template::from(value.as_str());
            let (name, is_added) = ("Cache-Control".to_owned(), false);
            let change = Change::ResponseOf(StatusField { status: SUCCESSES, is_added, name, text });
            rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
        }
        for AddedField { name, value, is_always, origin } in &scope.add_headers {
            match self.changes(value) {
                Some(values) if is_changeable(name) => {
                    let change = |text| match is_always {
                        true => Change::AddResponse(name.clone(), text),
                        false => {
                            let (status, name) = (SUCCESSES, name.clone());
                            Change::ResponseOf(StatusField { status, is_added: true, name, text })
                        }
                    };
                    rules.extend(self.change_rules(values, &change, origin));
                }
                _ => self.draft.leave(Kind::NotSupported, origin, crate::draft::VALUE_OF_REQUEST),
            }
        }
        for (name, origin) in &scope.hidden {
            match is_changeable(name) {
                true => {
                    let change = Change::RemoveResponse(name.clone());
                    rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
                }
                false => self.draft.leave(Kind::NotSupported, origin, "weir sets this field itself"),
            }
        }
        rules
    }

    pub(super) fn request_changes(&mut self, scope: &Scope, destination: &Destination) -> Vec<Rule> {
        let mut rules = Vec::new();
        let always = |change, origin: &Rc<Origin>| Rule::Change(Condition::Always, change, Rc::clone(origin));
        let has_client_address = scope
            .set_headers
            .iter()
            .any(|(name, value, _)| name.eq_ignore_ascii_case("x-forwarded-for") && is_client_address(value));
        if self.common.sends_client_address && !has_client_address {
            let origin =
                implied(&self.server.origin, "without proxy_set_header, there is no X-Forwarded-For");
            rules.push(always(Change::RemoveRequest("X-Forwarded-*".into()), &origin));
        }
        for (name, value, origin) in &scope.set_headers {
            rules.extend(self.request_change(name, value, has_client_address, origin));
        }
        if !scope.set_headers.iter().any(|(name, ..)| name.eq_ignore_ascii_case("host")) {
            let text = format!("without proxy_set_header, Host is {}", destination.host());
            let origin: &Rc<Origin> = &implied(&self.server.origin, &text);
            rules.push(always(Change::SetRequest("Host".into(), destination.host().into()), origin));
        }
        rules
    }

    /// Converts one `proxy_set_header`; no rules: weir does so itself, or it is reported.
    fn request_change(
        &mut self,
        name: &str,
        value: &str,
        has_client_address: bool,
        origin: &Rc<Origin>,
    ) -> Vec<Rule> {
        let lower = name.to_ascii_lowercase();
        match (lower.as_str(), value) {
            ("upgrade" | "connection", _) => {
                self.draft.leave(
                    Kind::NoEffect,
                    origin,
                    "connections are kept, and upgrades (WebSocket) forwarded",
                );
                return Vec::new();
            }
            ("host", "$http_host") | (_, "$request_id") => return Vec::new(),
            ("host", "$host") if self.server.has_standard_ports() => return Vec::new(),
            ("x-forwarded-for", value) if is_client_address(value) => return Vec::new(),
            ("x-forwarded-proto", "$scheme") if has_client_address => return Vec::new(),
            ("x-forwarded-host", "$host" | "$http_host") if has_client_address => return Vec::new(),
            // The field of the client.
            (field, value)
                if value.strip_prefix("$http_").is_some_and(|name| name.replace('_', "-") == field) =>
            {
                return Vec::new();
            }
            _ => {}
        }
        let always = |change| vec![Rule::Change(Condition::Always, change, Rc::clone(origin))];
        if !is_changeable(name) {
            self.draft.leave(Kind::NotSupported, origin, "weir sets this field itself");
            return Vec::new();
        }
        if value.is_empty() && lower != "host" {
            return always(Change::RemoveRequest(name.to_owned()));
        }
        let set = |value: Template| match value.literal() {
            Some("") if lower != "host" => Change::RemoveRequest(name.to_owned()),
            _ => Change::SetRequest(name.to_owned(), value),
        };
        match self.changes(value) {
            Some(values) => self.change_rules(values, &set, origin),
            None => {
                self.draft.leave(Kind::NotSupported, origin, crate::draft::VALUE_OF_REQUEST);
                if lower == "host" { Vec::new() } else { always(Change::LoseRequest(name.to_owned())) }
            }
        }
    }
}
