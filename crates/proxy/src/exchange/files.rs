//! Files of a route's directory as responses (`files`): `content` finds them, and makes their fields. The content is
//! read or encoded a slice at a time, as `weir serve` does.

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use content::body::{Prepared, SLICE_BYTES};
use content::ranges::ByteRange;
use content::request::{FileRequest, RequestFields, RequestTime};
use content::respond::FileResponse;
use wire::{Framing, Limits, RequestKind, Version};

use super::finish::OwnResponse;
use super::{StepResult, Wait};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::config_generation::ConfigGeneration;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::forward::{ClientFraming, origin_form};
use crate::outcome::{EndPhase, EndReason};
use crate::plan::RouteChange;
use crate::profile::ProfilePhase;
use crate::route::{RouteRequest, changes_target, rewrite_target};
use crate::uri::split_target;

/// Maximum number of bytes of a file that the kernel sends at a time.
const KERNEL_SLICE_BYTES: u64 = 256 * 1024;
/// Fields of an error response that stay when an error page has its content.
const ERROR_FIELDS: [&str; 3] = ["allow", "content-range", "retry-after"];

impl Exchange {
    /// Responds with a file of the route's directory.
    #[cold]
    pub(super) fn respond_from_files(
        &mut self,
        core: &Core,
        client: &ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
    ) {
        let Some(route) = self.outcome.route else { return };
        let Some(site) = generation.file_site(route) else {
            return self.respond_with_status(core, client, 500, &[]);
        };
        let target = file_target(&generation.plan.routes[route].changes, request);
        let file_request = FileRequest {
            method: request.method,
            target: &target,
            fields: RequestFields::Http1(request.view.head.headers),
        };
        let now_ns = core.ticks.now.get().as_ns();
        let time = RequestTime { now_ns, unix_s: rt::clock::unix_ns() / 1_000_000_000 };
        let mut response = content::respond::respond(site, &file_request, time);
        if response.status == 301 {
            set_location(&mut response, request.target);
        }
        match response.status {
            400.. => {
                let fields = fields_of(&response.fields);
                let is_kept = |name: &str| ERROR_FIELDS.iter().any(|kept| name.eq_ignore_ascii_case(kept));
                let kept: Vec<_> = fields.into_iter().filter(|(name, _)| is_kept(name)).collect();
                self.respond_with_status(core, client, response.status, &kept);
            }
            _ => self.start_file(core, client, response),
        }
    }

    /// Responds with a status, and the error page for it.
    fn respond_with_status(
        &mut self,
        core: &Core,
        client: &ClientStream,
        status: u16,
        fields: &[(&str, &[u8])],
    ) {
        if self.write_error_page(core, client, status, fields) {
            return;
        }
        let body = format!("{status} {}\n", wire::encode::reason(status));
        let response = OwnResponse { status, content_type: "text/plain", body: body.as_bytes(), fields };
        self.respond(core, client, &response);
    }

    fn start_file(&mut self, core: &Core, client: &ClientStream, response: FileResponse) {
        let FileResponse { status, fields, content_length, body, .. } = response;
        let fields = fields_of(&fields);
        let own = OwnResponse { status, content_type: "", body: b"", fields: &fields };
        self.respond_with_length(core, client, &own, content_length);
        if self.facts.kind == RequestKind::Head || body.is_empty() {
            return;
        }
        let in_memory = body.in_memory().filter(|content| content.len() <= SLICE_BYTES && !self.has_limits());
        if let Some(content) = in_memory {
            self.response_relay.head_buffer().extend_from_slice(content);
            return;
        }
        let framing = match (content_length, self.facts.version) {
            (Some(_), _) => ClientFraming::Length,
            (None, Version::Http11) => ClientFraming::Chunked,
            (None, Version::Http10) => ClientFraming::UntilClose,
        };
        self.response_relay.begin(Framing::None, framing, &Limits::default());
        self.response = ResponseProgress::Body;
        self.stage = ExchangeStage::SendingFile(Box::new(body));
        self.begin_limits();
    }

    /// Sends the content of a file, a slice of at most so many bytes at a time.
    pub(super) fn poll_sending_file(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        bytes_max: usize,
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        let bytes_before = self.outcome.bytes_out;
        let wait = Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
        match self.response_relay.poll_flush(ctx.cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return self.fail_client_gone(ctx, client),
            Poll::Pending if self.outcome.bytes_out > bytes_before => return StepResult::Progressed,
            Poll::Pending if self.expired_timeout(ctx, client, wait).is_some() => {
                return self.fail(ctx, client, EndReason::WriteTimeout, EndPhase::Data);
            }
            Poll::Pending => return StepResult::Blocked,
        }
        if self.response == ResponseProgress::Done {
            return StepResult::Finished(self.finish(ctx, client));
        }
        if client.stream.is_plain_socket()
            && let Some(result) = self.poll_send_range(ctx, client, bytes_max)
        {
            return result;
        }
        self.progress.client_write.stop();
        let ExchangeStage::SendingFile(body) = &mut self.stage else { return StepResult::Progressed };
        let is_encoding = body.is_encoding_next();
        let Ok(prepared) = body.prepare() else {
            // The head has announced more.
            return self.fail(ctx, client, EndReason::FileFailed, EndPhase::Data);
        };
        let slice = body.ready();
        let slice = &slice[..slice.len().min(SLICE_BYTES).min(bytes_max)];
        let bytes = slice.len();
        self.response_relay.push_recoded(slice, false);
        body.advance(bytes);
        if prepared == Prepared::End || body.is_empty() {
            self.response = ResponseProgress::Done;
            self.response_relay.push_recoded(b"", true);
        }
        if is_encoding {
            // A slice takes about a millisecond, and others have their turn.
            rt::cores::yield_turn(ctx.cx);
            return StepResult::Blocked;
        }
        StepResult::Progressed
    }
}

impl Exchange {
    /// Lets the kernel send the next bytes of a file (sendfile(2)). `None`: what is next is no file, or has a coding.
    fn poll_send_range(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        bytes_max: usize,
    ) -> Option<StepResult> {
        let ExchangeStage::SendingFile(body) = &mut self.stage else { return None };
        let (file, range) = body.file_range()?;
        let bytes = sendable_bytes(file, range).min(bytes_max);
        match client.stream.poll_send_file(ctx.cx, file, range.start, bytes) {
            Poll::Ready(Ok(sent)) if sent > 0 => {
                let sent = sent as u64;
                // A socket that is full and a file that has become shorter look the same.
                let is_shorter = sent < bytes as u64 && !rt::file::has_bytes(file, range.start + sent);
                body.advance_range(sent);
                if body.is_empty() {
                    self.response = ResponseProgress::Done;
                }
                self.outcome.bytes_out += sent;
                self.progress.client_write.stop();
                Some(match is_shorter {
                    true => self.fail(ctx, client, EndReason::FileFailed, EndPhase::Data),
                    false => StepResult::Progressed,
                })
            }
            // The file has become shorter.
            Poll::Ready(Ok(_)) => Some(self.fail(ctx, client, EndReason::FileFailed, EndPhase::Data)),
            Poll::Ready(Err(error)) => Some(match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                    self.fail_client_gone(ctx, client)
                }
                _ => self.fail(ctx, client, EndReason::FileFailed, EndPhase::Data),
            }),
            Poll::Pending => {
                let wait = Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
                Some(match self.expired_timeout(ctx, client, wait) {
                    Some(_) => self.fail(ctx, client, EndReason::WriteTimeout, EndPhase::Data),
                    None => StepResult::Blocked,
                })
            }
        }
    }
}

/// Returns the number of bytes to send at once: many if they are in the page cache, and else a slice, while the kernel
/// reads those behind it.
fn sendable_bytes(file: BorrowedFd<'_>, range: ByteRange) -> usize {
    let bytes = range.len().min(KERNEL_SLICE_BYTES);
    if bytes > SLICE_BYTES as u64 && !rt::file::is_cached(file, range.start + bytes - 1) {
        rt::file::read_ahead(file, range.start, bytes);
        return SLICE_BYTES;
    }
    bytes as usize
}

/// Returns the target whose path is that of a file.
fn file_target<'r>(changes: &[RouteChange], request: &RouteRequest<'r>) -> Cow<'r, str> {
    if !changes_target(changes) {
        return Cow::Borrowed(request.target);
    }
    let target = origin_form(request.method, request.target);
    let mut rewritten = Vec::new();
    rewrite_target(changes, std::str::from_utf8(&target).unwrap_or_default(), &mut rewritten);
    Cow::Owned(String::from_utf8(rewritten).unwrap_or_default())
}

/// Redirects to the path of the request, and not to that of the file. It starts with one slash, so that it cannot name
/// another host.
fn set_location(response: &mut FileResponse, target: &str) {
    let (path, query) = split_target(target);
    let location = format!("/{}/{query}", path.trim_matches('/'));
    let lines = std::mem::take(&mut response.fields);
    for (name, value) in fields_of(&lines) {
        let value = if name.eq_ignore_ascii_case("location") { location.as_bytes() } else { value };
        wire::encode::field(&mut response.fields, name, value);
    }
}

fn fields_of(lines: &[u8]) -> Vec<(&str, &[u8])> {
    let lines = lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((std::str::from_utf8(&line[..colon]).ok()?, line[colon + 1..].trim_ascii()))
    });
    lines.collect()
}
