//! Log formats of HAProxy as texts with values of the request.

use std::rc::Rc;

use super::acl::{NoEquivalent, no_equivalent, split_fetch};
use super::keys::Use;
use super::maps::{self, Lookup};
use crate::document::Origin;
use crate::draft::{Draft, is_field_name, is_hidden};
use crate::left::Kind;
use crate::rules::Condition;
use crate::text::{Template, Variable};

/// Formats of one directive.
pub(super) struct Formats<'d, 'a> {
    pub(super) origin: &'d Rc<Origin>,
    pub(super) draft: &'d mut Draft<'a>,
    /// Requests for which weir has another value.
    pub(super) doubt: Condition,
    /// The text is one of a response.
    is_response: bool,
}

impl<'d, 'a> Formats<'d, 'a> {
    pub(super) fn new(origin: &'d Rc<Origin>, draft: &'d mut Draft<'a>, is_response: bool) -> Self {
        Self { origin, draft, doubt: Condition::Never, is_response }
    }

    /// Converts a log format with values of the request.
    pub(super) fn parse(&mut self, text: &str) -> Result<Template, NoEquivalent> {
        let mut template = Template::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            template.push_text(before);
            if let Some(after) = after.strip_prefix('%') {
                template.push_text("%");
                rest = after;
                continue;
            }
            if let Some(inner) = after.strip_prefix('[') {
                let Some((expression, after)) = inner.split_once(']') else {
                    return no_equivalent("a bracket is not closed");
                };
                self.push_expression(expression, &mut template)?;
                rest = after;
                continue;
            }
            rest = match after.strip_prefix("ci") {
                Some(after) => {
                    template.push(Variable::Source);
                    after
                }
                None => return no_equivalent("this variable of a log format"),
            };
        }
        template.push_text(rest);
        Ok(template)
    }

    fn push_expression(&mut self, expression: &str, template: &mut Template) -> Result<(), NoEquivalent> {
        if maps::has_map(&split_fetch(expression).1) {
            return self.push_map(expression, template);
        }
        match expression.to_ascii_lowercase().as_str() {
            "src" => template.push(Variable::Source),
            "dst_port" | "fc_dst_port" => template.push(Variable::Port),
            // With its port; a redirect has none.
            "hdr(host)" | "req.hdr(host)" => template.push(Variable::Header("host".to_owned())),
            field if header_name(field).is_some_and(|name| is_field_name(name) && !is_hidden(name)) => {
                template.push(Variable::Header(header_name(field).unwrap_or_default().to_owned()));
            }
            "path" => template.push(Variable::Path),
            "srv_name" if self.is_response => {
                let text = "a server with a host name has a name of its own";
                self.draft.leave(Kind::Differs, self.origin, text);
                template.push(Variable::Fact("server"));
            }
            "uuid" | "uuid()" | "uuid(4)" => {
                self.draft.leave(Kind::Differs, self.origin, "the id has another form");
                template.push(Variable::Fact("request-id"));
            }
            "capture.req.uri" | "url" | "pathq" => {
                template.push(Variable::Path);
                template.push(Variable::Query);
            }
            _ => return no_equivalent(format!("the value '%[{expression}]'")),
        }
        Ok(())
    }

    fn push_map(&mut self, expression: &str, template: &mut Template) -> Result<(), NoEquivalent> {
        let lookup = Lookup::parse(expression, Use::Text, self.origin, self.draft)?;
        template.push(lookup.variable()?);
        if lookup.may_be_missing() {
            let text =
                "a field is not sent to the server if the map has no entry; HAProxy sends an empty one";
            self.draft.leave(Kind::Differs, self.origin, text);
        }
        self.doubt = std::mem::replace(&mut self.doubt, Condition::Never).or(lookup.doubt);
        Ok(())
    }
}

/// Returns the field of a fetch `req.fhdr(name)`, which takes a complete line.
fn header_name(fetch: &str) -> Option<&str> {
    fetch.strip_prefix("req.fhdr(")?.strip_suffix(')')
}
