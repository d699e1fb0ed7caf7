//! Task of a client: moves bytes between the connection and the queues, and connects again.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use record::sorted::sort_by_key;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior};

use super::connection::{Connection, READ_BYTES, parse_info};
use super::protocol::{ProtocolError, ServerOperation, write_publication};
use super::{ClientOptions, ConnectError, LinkEvent, Message, ServerUrl};

/// Command of a client's handle.
pub(super) enum Command {
    Subscribe {
        subscription: u64,
        subject: String,
        messages: mpsc::Sender<Message>,
    },
    Unsubscribe(u64),
    Publish {
        subject: String,
        reply: String,
        headers: &'static str,
        payload: Vec<u8>,
    },
    /// The sender is used when all earlier commands are in the kernel.
    Flush(oneshot::Sender<()>),
}

/// Bytes that wait to be sent; no command is taken while there are more.
const OUTGOING_BYTES_MAX: usize = 1024 * 1024;
/// Longest pause between two attempts to connect again.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);
const RECONNECT_DELAY_STEP: Duration = Duration::from_millis(50);
/// Interval of the client's own pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Pings without a response after which the server counts as lost.
const PINGS_MAX: u32 = 2;
/// Maximum number of servers of a cluster that are tried.
const SERVERS_MAX: usize = 32;

struct ActiveSubscription {
    subject: String,
    messages: mpsc::Sender<Message>,
}

enum IoEvent {
    Received,
    Command(Command),
    Ping,
    Closed,
    Lost,
}

pub(super) struct Driver {
    options: ClientOptions,
    servers: Vec<ServerUrl>,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<LinkEvent>,
    max_payload: Arc<AtomicUsize>,
    subscriptions: BTreeMap<u64, ActiveSubscription>,
    /// Bytes to send, of which the first `sent` are in the kernel.
    outgoing: Vec<u8>,
    sent: usize,
    flushes: Vec<oneshot::Sender<()>>,
    /// Pings without a response.
    pings: u32,
    /// True if commands are taken before bytes in the next turn.
    takes_commands_first: bool,
}

impl Driver {
    pub(super) fn new(
        options: ClientOptions,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<LinkEvent>,
        max_payload: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            servers: vec![options.server.clone()],
            options,
            commands,
            events,
            max_payload,
            subscriptions: BTreeMap::new(),
            outgoing: Vec::new(),
            sent: 0,
            flushes: Vec::new(),
            pings: 0,
            takes_commands_first: false,
        }
    }

    /// Connects to the first server, once.
    pub(super) async fn connect(&mut self) -> Result<Connection, ConnectError> {
        let connection = Connection::open(&self.options.server, &self.options).await?;
        self.on_connected(&connection);
        Ok(connection)
    }

    /// Runs until all handles are gone.
    pub(super) async fn run(mut self, mut connection: Connection) {
        loop {
            let is_lost = self.drive(&mut connection).await;
            drop(connection);
            if !is_lost {
                return;
            }
            // A full channel has the latest changes already.
            let _ = self.events.try_send(LinkEvent::Disconnected);
            let Some(next) = self.reconnect().await else { return };
            connection = next;
        }
    }

    /// Connects again, without an end. `None`: all handles are gone.
    async fn reconnect(&mut self) -> Option<Connection> {
        let mut attempts: u32 = 0;
        loop {
            for server in self.servers.clone() {
                attempts = attempts.saturating_add(1);
                let delay = RECONNECT_DELAY_STEP.saturating_mul(attempts).min(RECONNECT_DELAY_MAX);
                tokio::time::sleep(delay).await;
                if self.commands.is_closed() {
                    return None;
                }
                if let Ok(connection) = Connection::open(&server, &self.options).await {
                    self.on_connected(&connection);
                    return Some(connection);
                }
            }
        }
    }

    /// Notes the properties of the server, and repeats the subscriptions.
    fn on_connected(&mut self, connection: &Connection) {
        // What was on its way is lost, and nobody waits for it any longer.
        self.outgoing.clear();
        self.flushes.clear();
        (self.sent, self.pings) = (0, 0);
        self.on_info(connection.info.max_payload, &connection.info.connect_urls);
        self.subscriptions.retain(|_, subscription| !subscription.messages.is_closed());
        for (number, subscription) in &self.subscriptions {
            let line = format!("SUB {} {number}\r\n", subscription.subject);
            self.outgoing.extend_from_slice(line.as_bytes());
        }
        let _ = self.events.try_send(LinkEvent::Connected);
    }

    fn on_info(&mut self, max_payload: usize, urls: &[String]) {
        if max_payload > 0 {
            self.max_payload.store(max_payload, Ordering::Relaxed);
        }
        let mut found: Vec<ServerUrl> = urls.iter().filter_map(|url| ServerUrl::parse(url).ok()).collect();
        // Not all clients try the same server first when one is lost.
        let random = RandomState::new();
        sort_by_key(&mut found, |server| random.hash_one((&server.host, server.port)));
        for server in found {
            let is_known =
                self.servers.iter().any(|known| (&known.host, known.port) == (&server.host, server.port));
            if !is_known && self.servers.len() < SERVERS_MAX {
                self.servers.push(ServerUrl { requires_tls: self.options.server.requires_tls, ..server });
            }
        }
    }

    /// Drives a connection. Returns true if it is lost, false if all handles are gone.
    async fn drive(&mut self, connection: &mut Connection) -> bool {
        let mut pings = tokio::time::interval_at(tokio::time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // Reads know no budget: the timer of the pings and the other tasks get their turn, too.
            tokio::task::coop::consume_budget().await;
            if self.handle_received(connection).is_err() {
                return true;
            }
            match std::future::poll_fn(|cx| self.poll(cx, connection, &mut buffer, &mut pings)).await {
                IoEvent::Received => {}
                IoEvent::Command(command) => self.handle_command(command),
                IoEvent::Ping if self.pings >= PINGS_MAX => return true,
                IoEvent::Ping => {
                    self.pings += 1;
                    self.outgoing.extend_from_slice(b"PING\r\n");
                }
                IoEvent::Closed => {
                    let rest = std::future::poll_fn(|cx| self.poll_send(cx, connection));
                    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
                    return false;
                }
                IoEvent::Lost => return true,
            }
        }
    }

    /// Sends, and returns the next event.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        buffer: &mut [u8],
        pings: &mut Interval,
    ) -> Poll<IoEvent> {
        if let Poll::Ready(Err(_)) = self.poll_send(cx, connection) {
            return Poll::Ready(IoEvent::Lost);
        }
        // Neither many commands nor many messages may delay the others.
        self.takes_commands_first = !self.takes_commands_first;
        for takes_command in [self.takes_commands_first, !self.takes_commands_first] {
            let event = match takes_command {
                true => self.poll_command(cx),
                false => poll_read(cx, connection, buffer),
            };
            if event.is_ready() {
                return event;
            }
        }
        pings.poll_tick(cx).map(|_| IoEvent::Ping)
    }

    fn poll_command(&mut self, cx: &mut Context<'_>) -> Poll<IoEvent> {
        // Sent bytes wake this task again.
        if self.outgoing.len() > OUTGOING_BYTES_MAX {
            return Poll::Pending;
        }
        self.commands.poll_recv(cx).map(|command| command.map_or(IoEvent::Closed, IoEvent::Command))
    }

    /// Sends what the kernel accepts. Ready: all is sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<io::Result<()>> {
        while self.sent < self.outgoing.len() {
            match connection.stream.poll_write(cx, &self.outgoing[self.sent..]) {
                Poll::Ready(Ok(bytes)) => self.sent += bytes,
                other => return other.map_ok(|_| ()),
            }
        }
        let flushed = connection.stream.poll_flush(cx);
        if let Poll::Ready(Ok(())) = &flushed {
            self.outgoing.clear();
            self.outgoing.shrink_to(OUTGOING_BYTES_MAX);
            self.sent = 0;
            for flush in self.flushes.drain(..) {
                let _ = flush.send(());
            }
        }
        flushed
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Subscribe { subscription, subject, messages } => {
                self.outgoing.extend_from_slice(format!("SUB {subject} {subscription}\r\n").as_bytes());
                self.subscriptions.insert(subscription, ActiveSubscription { subject, messages });
            }
            Command::Unsubscribe(subscription) => {
                if self.subscriptions.remove(&subscription).is_some() {
                    self.outgoing.extend_from_slice(format!("UNSUB {subscription}\r\n").as_bytes());
                }
            }
            Command::Publish { subject, reply, headers, payload } => {
                write_publication(&mut self.outgoing, &subject, &reply, headers, &payload);
            }
            Command::Flush(flush) => self.flushes.push(flush),
        }
    }

    /// Handles the operations that have arrived.
    fn handle_received(&mut self, connection: &mut Connection) -> Result<(), ProtocolError> {
        while let Some(operation) = connection.decoder.next()? {
            match operation {
                ServerOperation::Message { subject, subscription, status, payload } => {
                    let Some(active) = self.subscriptions.get(&subscription) else { continue };
                    let message =
                        Message { subject: subject.to_owned(), status, payload: payload.to_owned() };
                    // A message for a receiver that is too slow is lost: every state is sent again.
                    let _ = active.messages.try_send(message);
                }
                ServerOperation::Ping => self.outgoing.extend_from_slice(b"PONG\r\n"),
                ServerOperation::Pong => self.pings = 0,
                ServerOperation::Info(text) => {
                    let info = parse_info(text);
                    self.on_info(info.max_payload, &info.connect_urls);
                }
                ServerOperation::Error(text) => {
                    let _ = self.events.try_send(LinkEvent::Rejected(text.to_owned()));
                }
                ServerOperation::Ok => {}
            }
        }
        Ok(())
    }
}

fn poll_read(cx: &mut Context<'_>, connection: &mut Connection, buffer: &mut [u8]) -> Poll<IoEvent> {
    connection.stream.poll_read(cx, buffer).map(|read| match read {
        Ok(0) | Err(_) => IoEvent::Lost,
        Ok(bytes) => {
            connection.decoder.extend(&buffer[..bytes]);
            IoEvent::Received
        }
    })
}
