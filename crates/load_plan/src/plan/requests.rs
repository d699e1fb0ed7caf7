//! Requests of a plan, from URLs, files and the flags that hold for all of them; and their order by
//! weight. No I/O.

use std::sync::Arc;

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::format_plural;
use wire::encode;

use super::parse::{FlagReader, LoadFlags};
use super::request::RequestTemplate;
use super::template::{Template, TemplateNames};
use super::{BODY_BYTES_MAX, Http2Plan, RenderedRequest, SessionPlan, Url, grpc};

/// Text of one request, from a file or the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestText {
    /// Position for messages: `URL 1`, `targets.txt:3:1`.
    pub location: String,
    /// Method; `None`: that of the flags.
    pub method: Option<String>,
    pub url: String,
    /// Fields, in addition to those of the flags; a name replaces theirs.
    pub headers: Vec<String>,
    /// Body; `None`: that of the flags.
    pub body: Option<Vec<u8>>,
    pub weight: u64,
}

/// Maximum number of requests of a plan; a replay may have more.
const REQUESTS_MAX: usize = 100_000;
const WEIGHT_MAX: u64 = 10_000;
const ORDER_LENGTH_MAX: u64 = 1_000_000;

/// Parts of the requests that the flags set.
struct CommonParts {
    method: Option<String>,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    is_grpc: bool,
    is_http2: bool,
}

/// Parses all requests of a plan. Returns them and the body of the flags, which WebSocket sends as a message.
pub(super) fn parse_requests(
    text: &LoadFlags,
    http2: Option<&Http2Plan>,
    session: &SessionPlan,
    reader: &mut FlagReader,
) -> (Vec<RenderedRequest>, Vec<u8>) {
    let mut all: Vec<RequestText> = (1..)
        .zip(&text.urls)
        .map(|(index, url)| RequestText {
            location: format!("URL {index}"),
            url: url.clone(),
            weight: 1,
            ..RequestText::default()
        })
        .collect();
    apply_weights(text, &mut all, reader);
    // The requests of a replay have the URL's host; the URL itself is not requested.
    if text.replay.is_none() {
        all.extend(text.requests_of_files.iter().cloned());
    }
    if all.is_empty() {
        reader.add_problem("URL", "missing (write http://host:port/path)");
    }
    if all.len() > REQUESTS_MAX {
        reader.add_problem("--targets", format!("more than {REQUESTS_MAX} requests"));
        all.truncate(REQUESTS_MAX);
    }
    let mut common = common_parts(text, http2, reader);
    let body = common.body.clone();
    if text.is_websocket() {
        common.body.clear();
        add_handshake_fields(&mut common.fields, reader);
    }
    if text.sse && !common.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
        common.fields.push(("Accept".to_owned(), "text/event-stream".to_owned()));
    }
    let captures: Vec<String> = session.captures.iter().map(|capture| capture.name.clone()).collect();
    let columns = text.values.as_ref().map(|table| table.columns().to_vec()).unwrap_or_default();
    let names = TemplateNames { columns: &columns, captures: &captures };
    let requests: Vec<_> =
        all.iter().filter_map(|request| build(request, &common, session, names, reader)).collect();
    check_template_flags(text, session, &requests, reader);
    let has_template = requests.iter().any(|request| request.template.is_some());
    if has_template && !text.cookies && (text.is_websocket() || text.sse) {
        reader.add_problem("URL", "a load over WebSocket and one with --sse have no templates");
    }
    (requests, body)
}

/// Adds the fields of the handshake of WebSocket without its key.
fn add_handshake_fields(fields: &mut Vec<(String, String)>, reader: &mut FlagReader) {
    const OWN: [&str; 6] = [
        "connection",
        "upgrade",
        "sec-websocket-key",
        "sec-websocket-version",
        "sec-websocket-extensions",
        "sec-websocket-accept",
    ];
    for (name, _) in fields.iter() {
        if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            reader.add_problem("--header", format!("'{name}' is set by weir for the WebSocket handshake"));
        }
    }
    for (name, value) in
        [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    {
        fields.push((name.to_owned(), value.to_owned()));
    }
}

/// Reports values that no template can use.
fn check_template_flags(
    text: &LoadFlags,
    session: &SessionPlan,
    requests: &[RenderedRequest],
    reader: &mut FlagReader,
) {
    let has_template = requests.iter().any(|request| request.template.is_some());
    if !has_template && text.values.is_some() && reader.is_good() {
        reader.add_problem("--values", "no request has a template such as {{csv:COLUMN}}");
    }
    if !has_template && !session.captures.is_empty() && reader.is_good() {
        reader.add_problem("--capture", "no request has a template such as {{value:NAME}}");
    }
}

fn common_parts(text: &LoadFlags, http2: Option<&Http2Plan>, reader: &mut FlagReader) -> CommonParts {
    let is_grpc = http2.is_some_and(|http2| http2.grpc);
    let mut fields = parse_fields(&text.headers, "--header", reader);
    let body = body(text, reader);
    if is_grpc {
        grpc::add_fields(&mut fields);
    }
    if let Some(method) = &text.method {
        check_method(method, "--method", is_grpc, reader);
    }
    if http2.is_some() {
        reject_fields_of_http1(&fields, "--header", reader);
    }
    CommonParts { method: text.method.clone(), fields, body, is_grpc, is_http2: http2.is_some() }
}

fn check_method(method: &str, location: &str, is_grpc: bool, reader: &mut FlagReader) {
    if let Err(error) = encode::check_method(method) {
        reader.add_problem(location, error);
    }
    if method == "CONNECT" {
        reader.add_problem(location, "CONNECT opens a tunnel and cannot be measured");
    }
    if is_grpc && method != "POST" {
        reader.add_problem(location, "a call of gRPC is a POST request");
    }
}

fn build(
    text: &RequestText,
    common: &CommonParts,
    session: &SessionPlan,
    names: TemplateNames<'_>,
    reader: &mut FlagReader,
) -> Option<RenderedRequest> {
    let location = &text.location;
    let all = merged_fields(text, common, reader);
    let own_body = text.body.as_deref();
    let body = own_body.unwrap_or(&common.body);
    if body.len() as u64 > BODY_BYTES_MAX {
        reader.add_problem(location, format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    }
    let default = if body.is_empty() && !common.is_grpc { "GET" } else { "POST" };
    let method = text.method.as_deref().or(common.method.as_deref()).unwrap_or(default);
    if text.method.is_some() {
        check_method(method, location, common.is_grpc, reader);
    }
    let url = Url::parse(&text.url).map_err(|why| reader.add_problem(location, why)).ok()?;
    let mut template = |what: &str, text: &[u8]| {
        Template::parse(text, names)
            .map_err(|why| reader.add_problem(location, format!("{what}: {why}")))
            .ok()
    };
    let target = template("URL", url.target.as_bytes())?;
    let values: Option<Vec<_>> = all.iter().map(|(name, value)| template(name, value.as_bytes())).collect();
    let values = values?;
    let body_template = template("body", body)?;
    let is_fixed =
        [&target, &body_template].into_iter().chain(&values).all(|template| template.fixed().is_some());
    let fixed = |template: &Template, text: &[u8]| template.fixed().unwrap_or(text).to_vec();
    // Only braces were replaced, so the text is still valid.
    let fixed_text = |template: &Template, text: &str| {
        String::from_utf8(fixed(template, text.as_bytes())).unwrap_or_else(|_| text.to_owned())
    };
    let url = Url { target: fixed_text(&target, &url.target), ..url };
    let shown: Vec<(String, String)> = all
        .iter()
        .zip(&values)
        .map(|((name, value), template)| (name.clone(), fixed_text(template, value)))
        .collect();
    let body = match (common.is_grpc, fixed(&body_template, body)) {
        (true, message) => grpc::frame(&message),
        (false, body) => body,
    };
    let mut request = RenderedRequest::new(url, method, &shown, &body);
    request.weight = text.weight;
    if !is_fixed || session.cookies {
        if common.is_grpc {
            reader.add_problem(location, "a call of gRPC has no templates and no cookies");
        }
        let template =
            RequestTemplate { target, fields: values, body: body_template, has_cookies: session.cookies };
        request.template = Some(Arc::new(template));
    }
    Some(request)
}

/// Returns the fields of the flags and the request's own, which replace those of the same name.
fn merged_fields(text: &RequestText, common: &CommonParts, reader: &mut FlagReader) -> Vec<(String, String)> {
    let mut fields = parse_fields(&text.headers, &text.location, reader);
    if common.is_http2 {
        reject_fields_of_http1(&fields, &text.location, reader);
    }
    let is_own = |name: &str| fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let mut all: Vec<_> = common.fields.iter().filter(|(name, _)| !is_own(name)).cloned().collect();
    all.append(&mut fields);
    all
}

/// Rejects the fields that HTTP/2 does not have (RFC 9113 §8.2.2).
fn reject_fields_of_http1(fields: &[(String, String)], location: &str, reader: &mut FlagReader) {
    const CONNECTION_SPECIFIC: [&str; 4] = ["connection", "proxy-connection", "keep-alive", "upgrade"];
    for (name, value) in fields {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if CONNECTION_SPECIFIC.into_iter().any(is) || (is("te") && value != "trailers") {
            reader.add_problem(location, format!("'{name}: {value}' is not allowed in HTTP/2"));
        }
    }
}

fn parse_fields(headers: &[String], location: &str, reader: &mut FlagReader) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for header in headers {
        let Some((name, value)) = header.split_once(':') else {
            reader.add_problem(location, format!("'{header}' has no colon (write 'Name: value')"));
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let checked =
            encode::check_field_name(name).and_then(|()| encode::check_field_value(value.as_bytes()));
        if let Err(error) = checked {
            reader.add_problem(location, format!("'{header}': {error}"));
        } else if ["content-length", "transfer-encoding"]
            .iter()
            .any(|framing| name.eq_ignore_ascii_case(framing))
        {
            reader.add_problem(location, format!("'{name}' is set by weir from the body"));
        } else if name.eq_ignore_ascii_case("host")
            && fields.iter().any(|(given, _): &(String, String)| given.eq_ignore_ascii_case("host"))
        {
            // RFC 9112 §3.2: a server has to reject such a request.
            reader.add_problem(
                location,
                format!("'{header}': a request has one Host field: remove the other one"),
            );
        } else {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    fields
}

fn body(text: &LoadFlags, reader: &mut FlagReader) -> Vec<u8> {
    let body = match (&text.data, &text.data_file) {
        (Some(_), Some(_)) => {
            reader.add_problem("--data", "--data and --data-file are exclusive");
            Vec::new()
        }
        (Some(data), None) => data.as_bytes().to_vec(),
        (None, Some(bytes)) => bytes.clone(),
        (None, None) => Vec::new(),
    };
    if body.len() as u64 > BODY_BYTES_MAX {
        reader.add_problem("--data", format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    }
    body
}

/// Sets the weights of the URLs.
fn apply_weights(text: &LoadFlags, all: &mut [RequestText], reader: &mut FlagReader) {
    let Some(list) = &text.weights else { return };
    let weights: Vec<_> = list.split(',').map(|weight| parse_weight(weight.trim())).collect();
    if weights.len() != all.len() {
        reader.add_problem(
            "--weights",
            format!(
                "{} for {}",
                format_plural(weights.len() as u64, "weight"),
                format_plural(all.len() as u64, "URL")
            ),
        );
    }
    for (request, weight) in all.iter_mut().zip(weights) {
        match weight {
            Ok(weight) => request.weight = weight,
            Err(why) => reader.add_problem("--weights", why),
        }
    }
}

/// Parses the weight of a request.
///
/// # Errors
/// The text is not a weight.
pub fn parse_weight(text: &str) -> Result<u64, InvalidValue> {
    let weight = text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| invalid_value!("'{text}' is not a weight from 1 to {WEIGHT_MAX}"))
}

/// Returns the order in which items with these weights are used: each as often as its weight, spread
/// evenly (smooth weighted round robin, as in nginx).
pub fn weighted_order(weights: &[u64]) -> Vec<usize> {
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let sum: u64 = weights.iter().map(|weight| weight / divisor).sum();
    if sum == weights.len() as u64 {
        return (0..weights.len()).collect();
    }
    // Many requests with large weights would need a long order: their weights lose digits.
    let scale = (sum / ORDER_LENGTH_MAX + 1) * divisor;
    let weights: Vec<i64> = weights.iter().map(|weight| (weight / scale).max(1) as i64).collect();
    let sum: i64 = weights.iter().sum();
    let mut current = vec![0; weights.len()];
    (0..sum)
        .map(|_| {
            let mut best = 0;
            for (index, weight) in weights.iter().enumerate() {
                current[index] += weight;
                if current[index] > current[best] {
                    best = index;
                }
            }
            current[best] -= sum;
            best
        })
        .collect()
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_item_as_often_as_its_weight() {
        assert_eq!(weighted_order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(weighted_order(&[20, 20]), [0, 1]);
        assert_eq!(weighted_order(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        let order = weighted_order(&[70, 20, 10]);
        assert_eq!([0, 1, 2].map(|item| order.iter().filter(|index| **index == item).count()), [7, 2, 1]);
    }
}
