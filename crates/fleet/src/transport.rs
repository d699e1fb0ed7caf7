//! NATS: connections, publications and subscriptions. No other module knows it.
//!
//! A connection that breaks is made again without an end, and its subscriptions with it. Publications wait
//! meanwhile in a queue with a limit; when it is full they are dropped, because every state is sent again.
//! [`NatsLink::connect_with_retry`] also waits for a server that is not reachable at the start.

pub mod objects;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Server and credentials.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// URL of the server, `nats://host:4222` or `tls://host:4222`; it may contain a user and a password.
    pub url: String,
    /// File with the token of the server.
    pub token: Option<PathBuf>,
    /// File with a JWT and the seed of its nkey.
    pub credentials: Option<PathBuf>,
    /// File with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// File with the certificates of the authorities that are trusted with TLS; the system's without it.
    pub ca: Option<PathBuf>,
    /// File with the client's certificate for TLS, and the file with its key; both or none.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Name of the connection in the server's monitoring.
    pub name: String,
}

/// Reason why the server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the file system.
        error: std::io::Error,
    },
    /// The server rejects the client, or the client the server; another attempt has the same result.
    #[error("cannot connect to the NATS server {url}: {text}")]
    Connect {
        /// URL without its password.
        url: String,
        /// Reason.
        text: String,
    },
    /// The server is not reachable; another attempt may succeed.
    #[error("cannot connect to the NATS server {url}: {text}")]
    Unreachable {
        /// URL without its password.
        url: String,
        /// Reason.
        text: String,
    },
    /// The connection is closed.
    #[error("the connection to the NATS server is closed: {0}")]
    Closed(String),
}

/// Message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Subject.
    pub subject: String,
    /// Content.
    pub payload: Vec<u8>,
}

/// Change of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The server is connected, for the first time or again.
    Connected,
    /// The connection broke.
    Disconnected,
    /// The server rejected a message or a subscription.
    Rejected(String),
}

/// Connection to a server.
#[derive(Clone, Debug)]
pub struct NatsLink {
    client: Client,
    inbox: mpsc::Sender<Message>,
}

/// Messages that wait for their receiver; a subscription waits when the inbox is full, and the client drops
/// messages beyond its own limit.
const INBOX_MESSAGES_MAX: usize = 16 * 1024;
/// Publications that wait while the server is not connected.
const OUTBOX_MESSAGES_MAX: usize = 4 * 1024;
/// Longest pause between two attempts to connect again.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the second attempt of a first connection. It doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Longest pause between two attempts of a first connection.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Interval of the client's own pings: a server that is stopped is noticed after two of them.
const PING_INTERVAL: Duration = Duration::from_secs(5);

impl NatsLink {
    /// Connects to the server. Returns the link, the inbox of its subscriptions and the changes of the
    /// connection.
    ///
    /// # Errors
    /// The server is not reachable, or rejects the credentials.
    pub async fn connect(
        options: &NatsOptions,
    ) -> Result<(Self, mpsc::Receiver<Message>, mpsc::Receiver<LinkEvent>), TransportError> {
        let address = ServerAddr::from_str(&options.url).map_err(|error| TransportError::Connect {
            url: without_password(&options.url),
            text: error.to_string(),
        })?;
        let (events, link_events) = mpsc::channel(64);
        let mut connect = ConnectOptions::new()
            .name(options.name.clone())
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_INTERVAL)
            .client_capacity(OUTBOX_MESSAGES_MAX)
            .subscription_capacity(INBOX_MESSAGES_MAX)
            .max_reconnects(None)
            .reconnect_delay_callback(|attempts| {
                let delay = Duration::from_millis(50).saturating_mul(attempts.min(1000) as u32);
                delay.min(RECONNECT_DELAY_MAX)
            })
            .event_callback(move |event| {
                let events = events.clone();
                async move {
                    // A full channel has the latest changes already.
                    let _ = link_event(&event).map(|event| events.try_send(event));
                }
            });
        connect = with_credentials(connect, options)?;
        // The client ignores those of the URL.
        if let Some(user) = address.username() {
            let password = address.password().unwrap_or_default();
            connect = connect.user_and_password(user.to_owned(), password.to_owned());
        }
        let client = connect.connect(address).await.map_err(|error| connect_error(&options.url, &error))?;
        let (inbox, messages) = mpsc::channel(INBOX_MESSAGES_MAX);
        Ok((Self { client, inbox }, messages, link_events))
    }

    /// Connects to the server as soon as it is reachable, for at most `limit` (`None`: without an end). `notice`
    /// gets the reason of the first failure, once.
    ///
    /// # Errors
    /// The server is not reachable within the limit, or rejects the client.
    pub async fn connect_with_retry(
        options: &NatsOptions,
        limit: Option<Duration>,
        notice: fn(&str),
    ) -> Result<(Self, mpsc::Receiver<Message>, mpsc::Receiver<LinkEvent>), TransportError> {
        let started = Instant::now();
        let mut delay = RETRY_DELAY;
        let mut has_reported = false;
        loop {
            let error = match Self::connect(options).await {
                Err(error @ TransportError::Unreachable { .. }) => error,
                result => return result,
            };
            let remaining = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Err(error);
            }
            if !std::mem::replace(&mut has_reported, true) {
                let limit = limit.map_or_else(
                    || "until it is reachable".to_owned(),
                    |limit| format!("for {} s", limit.as_secs()),
                );
                notice(&format!("{error}; trying again {limit}"));
            }
            tokio::time::sleep(remaining.map_or(delay, |remaining| delay.min(remaining))).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    /// Subscribes to a subject; its messages arrive in the inbox.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn subscribe(&self, subject: &str) -> Result<(), TransportError> {
        let subscribed = self.client.subscribe(subject.to_owned()).await;
        let subscriber = subscribed.map_err(|error| TransportError::Closed(error.to_string()))?;
        tokio::spawn(forward(subscriber, self.inbox.clone()));
        Ok(())
    }

    /// Publishes a message. It is dropped if the queue of a connection that is down is full.
    pub async fn publish(&self, subject: String, payload: Vec<u8>) {
        // The client's queue is the only wait, and it moves on as soon as there is a connection again.
        let publication = self.client.publish(subject, payload.into());
        let _ = tokio::time::timeout(Duration::from_millis(20), publication).await;
    }

    /// Waits until everything was sent, for a limited time.
    pub async fn flush(&self) {
        let _ = tokio::time::timeout(Duration::from_secs(2), self.client.flush()).await;
    }
}

/// Adds the credentials, the trusted authorities and the client's certificate.
fn with_credentials(
    mut connect: ConnectOptions,
    options: &NatsOptions,
) -> Result<ConnectOptions, TransportError> {
    if let Some(path) = &options.credentials {
        let text = read(path)?;
        connect = connect.credentials(&text).map_err(|error| file_error(path, error))?;
    }
    if let Some(path) = &options.token {
        connect = connect.token(read(path)?.trim().to_owned());
    }
    if let Some(path) = &options.nkey {
        connect = connect.nkey(read(path)?.trim().to_owned());
    }
    if let Some(path) = &options.ca {
        // The client reports a missing file without its path.
        read(path)?;
        connect = connect.add_root_certificates(path.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &options.certificate {
        read(certificate)?;
        read(key)?;
        connect = connect.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
    }
    Ok(connect)
}

/// Returns the error of an attempt: a rejection, or a server that may be reachable later.
fn connect_error(url: &str, error: &ConnectError) -> TransportError {
    let (url, text) = (without_password(url), error_chain(error));
    let is_temporary = match error.kind() {
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => true,
        ConnectErrorKind::Io => !is_rejection(error),
        _ => false,
    };
    match is_temporary {
        true => TransportError::Unreachable { url, text },
        false => TransportError::Connect { url, text },
    }
}

/// Returns true for an error of TLS: a certificate that is not trusted, or an alert of the server. Rustls wraps
/// both as invalid data.
fn is_rejection(error: &ConnectError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::InvalidData)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

async fn forward(mut subscriber: Subscriber, inbox: mpsc::Sender<Message>) {
    while let Some(message) = subscriber.next().await {
        let message = Message { subject: message.subject.to_string(), payload: message.payload.to_vec() };
        if inbox.send(message).await.is_err() {
            return;
        }
    }
}

fn link_event(event: &Event) -> Option<LinkEvent> {
    match event {
        Event::Connected => Some(LinkEvent::Connected),
        Event::Disconnected | Event::Closed => Some(LinkEvent::Disconnected),
        Event::ServerError(error) => Some(LinkEvent::Rejected(error.to_string())),
        _ => None,
    }
}

fn read(path: &Path) -> Result<String, TransportError> {
    std::fs::read_to_string(path).map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, error: std::io::Error) -> TransportError {
    TransportError::File { path: path.display().to_string(), error }
}

/// Returns an error with its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

/// Returns a URL as it may be printed.
#[must_use]
pub fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        assert_eq!(without_password("nats://user:secret@host:4222"), "nats://…@host:4222");
        assert_eq!(without_password("nats://host:4222"), "nats://host:4222");
    }
}
