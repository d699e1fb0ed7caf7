//! NATS: connections, publications and subscriptions. No other module knows it.
//!
//! A connection that breaks is made again without an end, and its subscriptions with it. Publications wait
//! meanwhile in a queue with a limit; when it is full they are dropped, because every state is sent again.
//! [`NatsLink::connect_with_retry`] also waits for a server that is not reachable at the start.

pub mod objects;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::nats::{
    ClientOptions, ConnectError, Credentials, CredentialsError, NatsClient, ServerUrl, SigningKey,
    parse_credentials,
};
pub use crate::nats::{LinkEvent, Message};

/// Server and credentials.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// URL of the server, `nats://host:4222` or `tls://host:4222`; it may contain a user and a password.
    pub url: String,
    pub token: Option<PathBuf>,
    /// File with a JWT and the seed of its nkey.
    pub credentials: Option<PathBuf>,
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
    File { path: String, error: std::io::Error },
    /// The server rejects the client, or the client the server; another attempt has the same result.
    #[error("cannot connect to the NATS server {url}: {text}")]
    Connect {
        /// URL without its password.
        url: String,
        text: String,
    },
    /// The server is not reachable; another attempt may succeed.
    #[error("cannot connect to the NATS server {url}: {text}")]
    Unreachable {
        /// URL without its password.
        url: String,
        text: String,
    },
    #[error("the connection to the NATS server is closed: {0}")]
    Closed(String),
}

#[derive(Clone, Debug)]
pub struct NatsLink {
    client: NatsClient,
    inbox: mpsc::Sender<Message>,
}

/// Messages that wait for their receiver; the client drops messages beyond that.
const INBOX_MESSAGES_MAX: usize = 32 * 1024;
/// Pause before the second attempt of a first connection. It doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Longest pause between two attempts of a first connection.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

impl NatsLink {
    /// Connects to the server. Returns the link, the inbox of its subscriptions and the changes of the
    /// connection.
    ///
    /// # Errors
    /// The server is not reachable, or rejects the credentials.
    pub async fn connect(
        options: &NatsOptions,
    ) -> Result<(Self, mpsc::Receiver<Message>, mpsc::Receiver<LinkEvent>), TransportError> {
        let url = without_password(&options.url);
        let server = match ServerUrl::parse(&options.url) {
            Ok(server) => server,
            Err(error) => return Err(TransportError::Connect { url, text: error.to_string() }),
        };
        let credentials = read_credentials(options, &server)?;
        // Their paths are in the error, and no attempt repeats it.
        let certificate = options.certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for path in options.ca.iter().chain(certificate) {
            read(path)?;
        }
        let client_options = ClientOptions {
            server,
            name: options.name.clone(),
            credentials,
            ca: options.ca.clone(),
            certificate: options.certificate.clone(),
        };
        let (events, link_events) = mpsc::channel(64);
        let client = NatsClient::connect(client_options, events).await;
        let client = client.map_err(|error| connect_error(url, &error))?;
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
        let subscribed = self.client.subscribe_to(subject.to_owned(), self.inbox.clone()).await;
        subscribed.map(|_| ()).map_err(|error| TransportError::Closed(error.to_string()))
    }

    /// Publishes a message. It is dropped if the queue of a connection that is down is full.
    pub async fn publish(&self, subject: String, payload: Vec<u8>) {
        // The client's queue is the only wait, and it moves on as soon as there is a connection again.
        let publication = self.client.publish(subject, String::new(), "", payload);
        let _ = tokio::time::timeout(Duration::from_millis(20), publication).await;
    }

    /// Waits until everything was sent, for a limited time.
    pub async fn flush(&self) {
        let _ = tokio::time::timeout(Duration::from_secs(2), self.client.flush()).await;
    }
}

fn read_credentials(options: &NatsOptions, server: &ServerUrl) -> Result<Credentials, TransportError> {
    let invalid = |path: &Path, error: CredentialsError| {
        file_error(path, std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    };
    let jwt = options.credentials.as_deref().map(|path| {
        let text = read(path)?;
        parse_credentials(&text).map_err(|error| invalid(path, error))
    });
    let nkey = options.nkey.as_deref().map(|path| {
        let text = read(path)?;
        SigningKey::from_seed(&text).map_err(|error| invalid(path, error))
    });
    let token = options.token.as_deref().map(|path| Ok::<_, TransportError>(read(path)?.trim().to_owned()));
    Ok(Credentials {
        user: server.user.clone(),
        token: token.transpose()?,
        nkey: nkey.transpose()?,
        jwt: jwt.transpose()?,
    })
}

/// Returns the error of an attempt: a rejection, or a server that may be reachable later.
fn connect_error(url: String, error: &ConnectError) -> TransportError {
    let text = error.to_string();
    match error.is_temporary() {
        true => TransportError::Unreachable { url, text },
        false => TransportError::Connect { url, text },
    }
}

fn read(path: &Path) -> Result<String, TransportError> {
    std::fs::read_to_string(path).map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, error: std::io::Error) -> TransportError {
    TransportError::File { path: path.display().to_string(), error }
}

/// Returns a URL as it may be printed.
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
