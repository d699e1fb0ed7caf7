//! An exchange whose route limits its bytes per second. A direction is read only when some of its bytes are due;
//! bytes that were read go out at once. So the wait for them is no wait for a peer, and counts for no timeout.

use std::ops::Range;

use rt::clock::MonotonicTime;
use wire::{RequestKind, ResponseHead};

use super::StepResult;
use super::response::HeadResult;
use crate::bandwidth::BandwidthGate;
use crate::client_stream::{ClientStatus, ClientStream, TimeoutKind};
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage, LimitedStage, ResponseProgress};
use crate::metrics::Metrics;
use crate::outcome::{EndPhase, EndReason};

/// Result of a poll of one direction.
enum DirectionPoll {
    Moved(StepResult),
    /// Its next bytes are due then.
    NotDue(MonotonicTime),
}

impl Exchange {
    /// Begins to limit an exchange, if its route has limits. Called where a route with settings first has to wait, and
    /// before the content of a response.
    #[cold]
    pub(super) fn begin_limits(&mut self) {
        let Some(plan) = self.own_settings.as_ref().and_then(|own| own.bandwidth.as_ref()) else { return };
        let is_file = is_local(&self.stage);
        let is_begun = !is_file && !matches!(self.stage, ExchangeStage::Connected);
        if is_begun || self.facts.is_limited || self.facts.is_tcp {
            return;
        }
        let has_content = self.facts.kind != RequestKind::Head;
        let download = has_content.then(|| plan.download_gate()).flatten();
        let upload = (!is_file).then(|| plan.upload_gate()).flatten();
        if download.is_none() && upload.is_none() {
            return;
        }
        self.facts.is_limited = true;
        let inner = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
        self.stage = ExchangeStage::Limited(Box::new(LimitedStage { inner, download, upload }));
    }

    /// Prepares the coding and the limits of a response; another protocol has the limits of a tunnel. `None`: its head is
    /// forwarded as it is.
    #[cold]
    pub(super) fn begin_own_content(
        &mut self,
        core: &Core,
        client: &ClientStream,
        head: &ResponseHead<'_, '_>,
        used: usize,
    ) -> Option<HeadResult> {
        let recoded = self.write_recoded_head(core, client, head, used);
        if recoded.is_none() && !head.is_switching_protocols() {
            self.begin_limits();
        }
        recoded
    }

    pub(super) fn has_limits(&self) -> bool {
        self.own_settings.as_ref().is_some_and(|own| own.bandwidth.is_some())
    }

    /// Moves both directions as far as their bytes are due.
    pub(super) fn poll_limited(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let stage = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
        let ExchangeStage::Limited(mut limited) = stage else { return StepResult::Progressed };
        self.stage = std::mem::replace(&mut limited.inner, ExchangeStage::Unused);
        let result = self.poll_inner(ctx, client, input, &mut limited);
        if matches!(
            self.stage,
            ExchangeStage::Connected
                | ExchangeStage::Recoding(_)
                | ExchangeStage::SendingFile(_)
                | ExchangeStage::Cached(_)
        ) {
            limited.inner = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
            self.stage = ExchangeStage::Limited(limited);
        } else {
            self.facts.is_limited = false;
        }
        result
    }

    fn poll_inner(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        limited: &mut LimitedStage,
    ) -> StepResult {
        let is_file = is_local(&self.stage);
        let is_here = |stage: &ExchangeStage| {
            matches!(stage, ExchangeStage::Connected | ExchangeStage::Recoding(_)) && !is_file
        };
        let upload = match is_file {
            true => DirectionPoll::Moved(StepResult::Blocked),
            false => self.poll_upload(ctx, client, input, limited.upload.as_mut()),
        };
        if let DirectionPoll::Moved(StepResult::Finished(action)) = upload {
            return StepResult::Finished(action);
        }
        if !is_file && !is_here(&self.stage) {
            return StepResult::Progressed;
        }
        let download = self.poll_download(ctx, client, input, limited.download.as_mut());
        if let DirectionPoll::Moved(StepResult::Finished(action)) = download {
            return StepResult::Finished(action);
        }
        if is_file {
            return self.finish_file_poll(ctx, client, input, download);
        }
        if self.is_complete(client) {
            return StepResult::Finished(self.finish(ctx, client));
        }
        if !is_here(&self.stage) {
            return StepResult::Progressed;
        }
        let has_moved = |poll: &DirectionPoll| matches!(poll, DirectionPoll::Moved(StepResult::Progressed));
        if has_moved(&upload) || has_moved(&download) {
            self.note_progress(ctx.core, client);
            let is_shared = limited.download.as_ref().is_some_and(BandwidthGate::is_shared);
            if is_shared || matches!(self.stage, ExchangeStage::Recoding(_)) {
                // Others have the same limit, or an encoder takes long: they have their turn between two slices.
                rt::cores::yield_turn(ctx.cx);
                return StepResult::Blocked;
            }
            return StepResult::Progressed;
        }
        if let Some(result) = self.poll_hedge(ctx, client, input) {
            return result;
        }
        let due = |poll: DirectionPoll| match poll {
            DirectionPoll::NotDue(due) => Some(due),
            DirectionPoll::Moved(_) => None,
        };
        match (due(upload), due(download)) {
            (None, None) => self.poll_timeout(ctx, client, input),
            dues => self.wait_until_due(ctx, client, input, dues),
        }
    }

    fn finish_file_poll(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        download: DirectionPoll,
    ) -> StepResult {
        match download {
            DirectionPoll::NotDue(due) => self.wait_until_due(ctx, client, input, (None, Some(due))),
            DirectionPoll::Moved(StepResult::Progressed) => {
                rt::cores::yield_turn(ctx.cx);
                StepResult::Blocked
            }
            DirectionPoll::Moved(result) => result,
        }
    }

    fn poll_upload(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        mut gate: Option<&mut BandwidthGate>,
    ) -> DirectionPoll {
        note_moved(&mut gate, self.request_relay.content_bytes);
        let is_idle = self.attempt.is_request_broken || self.request_relay.is_received();
        let may_read = !is_idle && self.request_relay.is_flushed();
        match due_bytes(gate, may_read, ctx.core.ticks.now.get(), 0..input.len()) {
            Err(due) => DirectionPoll::NotDue(due),
            Ok(bytes) => DirectionPoll::Moved(self.poll_request(ctx, client, &mut input[..bytes])),
        }
    }

    fn poll_download(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        mut gate: Option<&mut BandwidthGate>,
    ) -> DirectionPoll {
        note_moved(&mut gate, self.outcome.bytes_out + self.response_relay.unsent_bytes());
        if gate.is_some()
            && !self.response_relay.is_flushed()
            && let Some(result) = self.poll_flush_response(ctx, client)
        {
            return DirectionPoll::Moved(result);
        }
        let may_read = self.response != ResponseProgress::Done;
        // Bytes that were read before are processed in any case.
        let least_bytes = self.unprocessed.len() + 1;
        let now = ctx.core.ticks.now.get();
        let bytes = match due_bytes(gate, may_read, now, least_bytes..input.len()) {
            Err(due) => return DirectionPoll::NotDue(due),
            Ok(bytes) => bytes,
        };
        let input = &mut input[..bytes];
        DirectionPoll::Moved(match self.stage {
            ExchangeStage::SendingFile(_) => self.poll_sending_file(ctx, client, bytes),
            ExchangeStage::Cached(_) => self.poll_cached(ctx, client, input, bytes),
            ExchangeStage::Recoding(_) => self.poll_recoded_response(ctx, client, input),
            _ => self.poll_response(ctx, client, input),
        })
    }

    /// Waits until bytes of the upload or the download are due. The client may leave meanwhile, and the total time may
    /// pass; nobody is late otherwise.
    fn wait_until_due(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        (upload, download): (Option<MonotonicTime>, Option<MonotonicTime>),
    ) -> StepResult {
        let now = ctx.core.ticks.now.get();
        let total_due = self.total_due();
        if total_due <= now {
            let phase = self.phase();
            return self.fail(ctx, client, EndReason::ServerTimeout, phase);
        }
        if upload.is_some() {
            self.progress.body.stop();
            self.progress.body_idle.stop();
        }
        if download.is_some() {
            self.progress.response.stop();
            self.progress.client_write.stop();
            self.attempt.first_byte_wait_start = MonotonicTime::ZERO;
        }
        let due = [upload, download].into_iter().flatten().min().unwrap_or(now).min(total_due);
        if client.timeout_kind() != TimeoutKind::Bandwidth || client.is_deadline_expired() {
            ctx.core.update_metrics(Metrics::count_bandwidth_wait);
            client.arm_early(ctx, TimeoutKind::Bandwidth, due.since(now));
        }
        let status = match self.request_relay.is_received() {
            true => client.check_client(ctx, input),
            false => client.check_unread_client(ctx.cx),
        };
        match status {
            ClientStatus::Present => StepResult::Blocked,
            ClientStatus::Eof if self.may_half_close(client) => {
                self.keeps_client &= !client.buffered.is_empty();
                StepResult::Blocked
            }
            ClientStatus::Eof | ClientStatus::Gone => {
                let phase = match self.phase() {
                    EndPhase::Last => EndPhase::Data,
                    phase => phase,
                };
                self.fail(ctx, client, EndReason::ClientGone, phase)
            }
        }
    }
}

/// Returns whether a stage sends content that comes from no connection.
fn is_local(stage: &ExchangeStage) -> bool {
    matches!(stage, ExchangeStage::SendingFile(_) | ExchangeStage::Cached(_))
}

/// Notes the sum of the bytes of a direction that were moved up to now.
fn note_moved(gate: &mut Option<&mut BandwidthGate>, bytes: u64) {
    if let Some(gate) = gate {
        gate.note(bytes);
    }
}

/// Returns the length of the next read of a direction, within its bounds; without a gate, or if nothing more may be read,
/// the largest.
///
/// # Errors
/// No bytes are due before this time.
fn due_bytes(
    gate: Option<&mut BandwidthGate>,
    may_read: bool,
    now: MonotonicTime,
    read_bytes: Range<usize>,
) -> Result<usize, MonotonicTime> {
    let Some(gate) = gate.filter(|_| may_read) else { return Ok(read_bytes.end) };
    gate.open(now).map(|due_bytes| due_bytes.max(read_bytes.start).min(read_bytes.end))
}
