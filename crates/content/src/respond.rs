//! The response to a request for a file: access, method, path, representation, preconditions, ranges.

use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

use server_shell::date::format_http_date;

use crate::body::FileBody;
use crate::codings::{AcceptedCodings, Coding, CodingCost};
use crate::compress::{self, Encoder};
use crate::conditions::{Precondition, Validators, evaluate, range_applies};
use crate::media_types::is_compressible;
use crate::memory_budget::encoder_bytes;
use crate::open_file::{Lookup, OpenFile};
use crate::ranges::{self, ByteRange, RequestedRanges};
use crate::request::{FileRequest, RequestTime};
use crate::site::FileSite;
use crate::target::{self, FilePath};

#[derive(Debug)]
pub struct FileResponse {
    pub status: u16,
    /// Fields as lines, without date, length and connection.
    pub fields: Vec<u8>,
    /// Length of the content of a GET; `None`: only the encoder will know it.
    pub content_length: Option<u64>,
    /// Content; empty for HEAD.
    pub body: FileBody,
    /// True if identical requests get this response for a while.
    pub is_repeatable: bool,
}

/// A representation: the file with its content, and its coding.
struct Representation<'f> {
    file: &'f Rc<OpenFile>,
    /// Type of the file without its coding.
    content_type: &'f str,
    coding: Option<Coding>,
    /// True if the coding is made on the fly.
    is_made: bool,
    /// True if another client may get another coding.
    varies: bool,
}

const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";
const TEXT: &[u8] = b"Content-Type: text/plain; charset=utf-8\r\n";
/// Browsers keep to the type of a response.
const NOSNIFF: &[u8] = b"X-Content-Type-Options: nosniff\r\n";

pub fn respond(site: &FileSite, request: &FileRequest<'_>, time: RequestTime) -> FileResponse {
    let mut response = match decide(site, request, time) {
        Ok(response) => response,
        Err(status) => error_response(status),
    };
    response.fields.extend_from_slice(NOSNIFF);
    write_cors(site, request, &mut response.fields);
    response.fields.extend_from_slice(&site.plan.fields);
    response.is_repeatable &= site.is_cached() && response.status < 500;
    if request.is_head() {
        response.body = FileBody::default();
    }
    response
}

/// Decides the response; an error is the status of a response without a file.
fn decide(site: &FileSite, request: &FileRequest<'_>, time: RequestTime) -> Result<FileResponse, u16> {
    let plan = &site.plan;
    let is_preflight = request.method == "OPTIONS" && request.get("access-control-request-method").is_some();
    if is_preflight && !plan.cors.is_empty() {
        // It is sent without credentials.
        return Ok(preflight_response());
    }
    if !plan.credentials.is_empty() && !plan.credentials.accept(request.get("authorization")) {
        return Err(401);
    }
    match request.method {
        "GET" | "HEAD" => {}
        "OPTIONS" => return Ok(empty_response(204, ALLOW.to_vec())),
        _ => return Err(405),
    }
    let path = target::parse(request.target, plan.serves_hidden).map_err(|error| error.status())?;
    match find(site, request, &path, time) {
        Found::File(file, path) => Ok(file_response(site, request, &file, &path, time)),
        Found::Redirect => Ok(redirect_response(&path)),
        Found::List => list_response(site, request, &path).ok_or(404),
        Found::Failed(status) => Err(status),
    }
}

/// Result of the search for a file.
enum Found {
    File(Rc<OpenFile>, Vec<u8>),
    /// A directory without the slash at its end.
    Redirect,
    /// A directory without an index.
    List,
    Failed(u16),
}

fn find(site: &FileSite, request: &FileRequest<'_>, path: &FilePath<'_>, time: RequestTime) -> Found {
    let plan = &site.plan;
    let status = match site.look_up_target(&path.path, time) {
        Lookup::File(file) if !path.is_directory || path.path.is_empty() => {
            return Found::File(file, path.path.clone());
        }
        Lookup::File(_) => 404,
        Lookup::Directory if !path.is_directory => return Found::Redirect,
        Lookup::Directory => {
            for name in &plan.index {
                let index = join(&path.path, name.as_bytes());
                if let Lookup::File(file) = site.look_up(&index, time) {
                    return Found::File(file, index);
                }
            }
            if plan.lists {
                return Found::List;
            }
            404
        }
        Lookup::Failed(status) => status,
    };
    if status == 404 && plan.is_spa && is_navigation(request, &path.path) {
        for name in &plan.index {
            if let Lookup::File(file) = site.look_up(name.as_bytes(), time) {
                return Found::File(file, name.clone().into_bytes());
            }
        }
    }
    Found::Failed(status)
}

/// Returns whether a missing path is one of the application, and not a missing file: the client accepts
/// HTML by name, as browsers do for pages, or the last name has no extension.
fn is_navigation(request: &FileRequest<'_>, path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    !name.contains(&b'.') || request.literal_quality(b"text/html") > 0
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn file_response(
    site: &FileSite,
    request: &FileRequest<'_>,
    file: &Rc<OpenFile>,
    path: &[u8],
    time: RequestTime,
) -> FileResponse {
    let accepted = AcceptedCodings::parse(request);
    // A path is empty for a single file at `/`, or standard input.
    let has_siblings = site.plan.uses_precompressed && !path.is_empty();
    let siblings =
        if has_siblings { find_siblings(site, file, path, accepted, time) } else { [const { None }; 3] };
    let mut representation = choose_representation(site, file, &siblings, accepted, has_siblings);
    if representation.is_made {
        if let Some(response) = made_response(site, request, &representation, time.unix_s) {
            return response;
        }
        // Without an encoder the client gets the file as it is.
        representation = Representation { coding: None, is_made: false, ..representation };
    }
    let file = representation.file;
    let validators = file.validators(time.unix_s);
    let mut fields = Vec::with_capacity(512);
    match evaluate(request, validators) {
        Precondition::Failed => return error_response(412),
        Precondition::NotModified => {
            write_validators(&mut fields, site, &representation, time.unix_s);
            return empty_response(304, fields);
        }
        Precondition::Met => {}
    }
    let ranges = match request.get("range") {
        Some(value) if request.method == "GET" && range_applies(request, validators, time.unix_s) => {
            ranges::parse(value, file.size())
        }
        _ => RequestedRanges::Complete,
    };
    write_validators(&mut fields, site, &representation, time.unix_s);
    if let Some(coding) = representation.coding {
        write_field(&mut fields, "Content-Encoding", coding.name());
    }
    match ranges {
        RequestedRanges::Complete => {
            write_field(&mut fields, "Content-Type", representation.content_type);
            ranged_response(200, fields, file, ByteRange { start: 0, end: file.size() })
        }
        RequestedRanges::Unsatisfiable => unsatisfiable_response(file.size()),
        RequestedRanges::Parts(parts) => match parts.as_slice() {
            &[part] => {
                write_field(&mut fields, "Content-Type", representation.content_type);
                let _ = write!(fields, "Content-Range: {}\r\n", content_range(part, file.size()));
                ranged_response(206, fields, file, part)
            }
            parts => multipart_response(fields, &representation, parts),
        },
    }
}

/// Looks up the coded files beside a file in the accepted codings, by [`Coding::index`]. Those that are older
/// than the file are not used.
fn find_siblings(
    site: &FileSite,
    file: &OpenFile,
    path: &[u8],
    accepted: AcceptedCodings,
    time: RequestTime,
) -> [Option<Rc<OpenFile>>; 3] {
    Coding::ALL.map(|coding| {
        if !accepted.accepts(coding) {
            return None;
        }
        match site.look_up(&[path, coding.extension()].concat(), time) {
            Lookup::File(sibling) if sibling.identity.modified_s() >= file.identity.modified_s() => {
                Some(sibling)
            }
            _ => None,
        }
    })
}

fn choose_representation<'f>(
    site: &FileSite,
    file: &'f Rc<OpenFile>,
    siblings: &'f [Option<Rc<OpenFile>>; 3],
    accepted: AcceptedCodings,
    has_siblings: bool,
) -> Representation<'f> {
    let plan = &site.plan;
    let is_compressible = is_compressible(&file.content_type);
    let is_made = plan.compression.is_any() && file.size() >= plan.compress_bytes_min && is_compressible;
    // A client that accepts no coding causes no lookup, so a type that compresses may have a coded file.
    let varies = is_made || (has_siblings && is_compressible) || siblings.iter().any(Option::is_some);
    let identity =
        Representation { file, content_type: &file.content_type, coding: None, is_made: false, varies };
    if !varies {
        return identity;
    }
    // A coded file costs nothing, so it wins over an encoder for a coding that the client likes as much.
    let cost_of = |coding: Coding| match &siblings[coding.index()] {
        Some(_) => Some(CodingCost::Precompressed),
        None => plan.compression.level(coding).filter(|_| is_made).map(|_| CodingCost::Encoded),
    };
    let Some(coding) = accepted.choose(cost_of) else { return identity };
    match &siblings[coding.index()] {
        Some(sibling) => Representation { file: sibling, coding: Some(coding), ..identity },
        None => Representation { coding: Some(coding), is_made: true, ..identity },
    }
}

/// Responds with a file that is compressed on the fly. It has no ranges, and a weak tag: another version of
/// the library may make other bytes. `None`: there is no memory for the encoder, or it failed.
fn made_response(
    site: &FileSite,
    request: &FileRequest<'_>,
    representation: &Representation<'_>,
    unix_s: u64,
) -> Option<FileResponse> {
    let (file, coding) = (representation.file, representation.coding?);
    let level = site.plan.compression.level(coding)?;
    let etag = match file.etag() {
        "" => String::new(),
        etag => format!("W/{}-{}\"", etag.trim_end_matches('"'), coding.name()),
    };
    let validators = Validators { etag: Some(etag.as_bytes()), ..file.validators(unix_s) };
    let mut fields = Vec::with_capacity(512);
    write_field(&mut fields, "Last-Modified", &format_http_date(file.modified_s(unix_s)));
    if !etag.is_empty() {
        write_field(&mut fields, "ETag", &etag);
    }
    write_variation(&mut fields, site, representation);
    match evaluate(request, validators) {
        Precondition::Failed => return Some(error_response(412)),
        Precondition::NotModified => return Some(empty_response(304, fields)),
        Precondition::Met => {}
    }
    write_field(&mut fields, "Content-Type", representation.content_type);
    write_field(&mut fields, "Content-Encoding", coding.name());
    if let Some(content) = file.memory().filter(|content| content.len() <= MADE_AT_ONCE_BYTES_MAX) {
        let mut failed = false;
        let made = file.coded.get_or_make(coding, || {
            let encoded = compress::encode(coding, level, content);
            failed = encoded.is_err();
            Arc::from(encoded.unwrap_or_default())
        });
        return (!failed).then(|| content_response(200, fields, FileBody::from_memory(made)));
    }
    if request.is_head() {
        return Some(FileResponse { content_length: None, ..empty_response(200, fields) });
    }
    let permit = site.encoders.acquire(encoder_bytes(coding, level))?;
    let encoder = Encoder::new(coding, level, Some(file.size())).ok()?;
    let body = FileBody::encoded(file, encoder, permit);
    Some(FileResponse { status: 200, fields, content_length: None, body, is_repeatable: false })
}

/// Maximum size of content that is compressed at once and kept: that of files in memory.
const MADE_AT_ONCE_BYTES_MAX: usize = crate::open_file::MEMORY_FILE_BYTES_MAX as usize;

fn multipart_response(
    mut fields: Vec<u8>,
    representation: &Representation<'_>,
    parts: &[ByteRange],
) -> FileResponse {
    let (file, content_type) = (representation.file, representation.content_type);
    let boundary = format!("weir-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    write_field(&mut fields, "Content-Type", &format!("multipart/byteranges; boundary={boundary}"));
    let mut body = FileBody::default();
    for &part in parts {
        let content_range = content_range(part, file.size());
        let text = format!(
            "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {content_range}\r\n\r\n"
        );
        body.push_text(text.into_bytes());
        body.push_range(file, part);
    }
    body.push_text(format!("\r\n--{boundary}--\r\n").into_bytes());
    FileResponse { is_repeatable: false, ..content_response(206, fields, body) }
}

fn ranged_response(status: u16, fields: Vec<u8>, file: &Rc<OpenFile>, range: ByteRange) -> FileResponse {
    let mut body = FileBody::default();
    body.push_range(file, range);
    content_response(status, fields, body)
}

fn redirect_response(path: &FilePath<'_>) -> FileResponse {
    // The path has no empty segment, so that the location cannot name another host.
    let mut fields = TEXT.to_vec();
    write_field(&mut fields, "Location", &format!("{}/{}", path.raw, path.query));
    content_response(301, fields, FileBody::from_text(status_text(301)))
}

fn list_response(site: &FileSite, request: &FileRequest<'_>, path: &FilePath<'_>) -> Option<FileResponse> {
    let list = site.list(&path.path)?;
    let mut fields = b"Vary: Accept\r\nCache-Control: no-cache\r\n".to_vec();
    let json_quality = request.literal_quality(b"application/json");
    let text = if json_quality > 0 && json_quality >= request.literal_quality(b"text/html") {
        write_field(&mut fields, "Content-Type", "application/json");
        list.to_json()
    } else {
        write_field(&mut fields, "Content-Type", "text/html; charset=utf-8");
        let name = String::from_utf8_lossy(&path.path);
        list.to_html(&if name.is_empty() { "/".to_owned() } else { format!("/{name}/") })
    };
    let Some(permit) = site.lists.acquire(text.len() as u64) else {
        let mut response = error_response(503);
        response.fields.extend_from_slice(b"Retry-After: 1\r\n");
        return Some(FileResponse { is_repeatable: false, ..response });
    };
    let response = content_response(200, fields, FileBody::from_permitted_text(text.into_bytes(), permit));
    Some(FileResponse { is_repeatable: false, ..response })
}

fn preflight_response() -> FileResponse {
    let fields =
        b"Access-Control-Allow-Methods: GET, HEAD\r\nAccess-Control-Allow-Headers: Range, If-Range, \
                   If-Match, If-None-Match, If-Modified-Since, Authorization\r\n\
                   Access-Control-Max-Age: 86400\r\n";
    empty_response(204, fields.to_vec())
}

fn unsatisfiable_response(size: u64) -> FileResponse {
    let mut response = error_response(416);
    let _ = write!(response.fields, "Content-Range: bytes */{size}\r\n");
    response
}

fn error_response(status: u16) -> FileResponse {
    let mut fields = TEXT.to_vec();
    match status {
        401 => write_field(&mut fields, "WWW-Authenticate", "Basic realm=\"weir\", charset=\"UTF-8\""),
        405 => fields.extend_from_slice(ALLOW),
        _ => {}
    }
    content_response(status, fields, FileBody::from_text(status_text(status)))
}

fn status_text(status: u16) -> Vec<u8> {
    format!("{status} {}\n", wire::encode::reason(status)).into_bytes()
}

fn empty_response(status: u16, fields: Vec<u8>) -> FileResponse {
    content_response(status, fields, FileBody::default())
}

fn content_response(status: u16, fields: Vec<u8>, body: FileBody) -> FileResponse {
    FileResponse { status, fields, content_length: body.remaining(), body, is_repeatable: true }
}

/// Writes the fields that a 304 has as well.
fn write_validators(fields: &mut Vec<u8>, site: &FileSite, representation: &Representation<'_>, unix_s: u64) {
    representation.file.write_fields(fields, unix_s);
    write_variation(fields, site, representation);
}

fn write_variation(fields: &mut Vec<u8>, site: &FileSite, representation: &Representation<'_>) {
    if representation.varies {
        write_field(fields, "Vary", "Accept-Encoding");
    }
    fields.extend_from_slice(&site.plan.cache_control);
}

/// Writes the fields that let pages of other origins read the response (Fetch, CORS protocol).
fn write_cors(site: &FileSite, request: &FileRequest<'_>, fields: &mut Vec<u8>) {
    const EXPOSED: &str = "Accept-Ranges, Content-Encoding, Content-Length, Content-Range, ETag";
    let origins = &site.plan.cors;
    let Some(first) = origins.first() else { return };
    if first == "*" {
        write_field(fields, "Access-Control-Allow-Origin", "*");
    } else {
        write_field(fields, "Vary", "Origin");
        let origin = request.get("origin").and_then(|value| std::str::from_utf8(value).ok());
        let Some(origin) = origin.filter(|origin| origins.iter().any(|allowed| allowed == origin)) else {
            return;
        };
        write_field(fields, "Access-Control-Allow-Origin", origin);
    }
    write_field(fields, "Access-Control-Expose-Headers", EXPOSED);
}

fn write_field(fields: &mut Vec<u8>, name: &str, value: &str) {
    wire::encode::field(fields, name, value.as_bytes());
}

fn content_range(range: ByteRange, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

#[cfg(test)]
mod tests;
