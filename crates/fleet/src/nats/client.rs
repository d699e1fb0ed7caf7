//! Handle of a client. Its connection has a thread, so that it does not depend on the caller's runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::driver::{Command, Driver};
use super::protocol::is_valid_subject;
use super::{ClientOptions, ConnectError, LinkEvent, Message, RequestError};

/// Commands that wait for the driver, or for a connection.
const COMMANDS_MAX: usize = 4 * 1024;

/// Handle of a client; its connection ends with the last one.
#[derive(Clone)]
pub(crate) struct NatsClient {
    commands: mpsc::Sender<Command>,
    next_subscription: Arc<AtomicU64>,
    max_payload: Arc<AtomicUsize>,
}

impl std::fmt::Debug for NatsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsClient").finish_non_exhaustive()
    }
}

/// Subscription to one subject, until it is dropped.
pub(crate) struct Subscription {
    number: u64,
    commands: mpsc::Sender<Command>,
    messages: mpsc::Receiver<Message>,
}

impl Subscription {
    /// Returns the next message.
    ///
    /// # Errors
    /// The client has ended.
    pub(crate) async fn next(&mut self) -> Result<Message, RequestError> {
        self.messages.recv().await.ok_or(RequestError::Closed)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // If the queue is full, the subscription ends with the connection.
        let _ = self.commands.try_send(Command::Unsubscribe(self.number));
    }
}

impl NatsClient {
    /// Connects to a server. `events` gets the changes of the connection.
    ///
    /// # Errors
    /// The server is not reachable, or rejects the client.
    pub(crate) async fn connect(
        options: ClientOptions,
        events: mpsc::Sender<LinkEvent>,
    ) -> Result<Self, ConnectError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (connected, is_connected) = oneshot::channel();
        let max_payload = Arc::new(AtomicUsize::new(usize::MAX));
        let max_payload_of_driver = Arc::clone(&max_payload);
        let body = move || {
            runtime.block_on(async {
                let mut driver = Driver::new(options, receiver, events, max_payload_of_driver);
                match driver.connect().await {
                    // If the caller does not wait any longer, all handles are gone, and the driver ends.
                    Ok(connection) => {
                        let _ = connected.send(Ok(()));
                        driver.run(connection).await;
                    }
                    Err(error) => drop(connected.send(Err(error))),
                }
            });
            // A look-up of a name that does not return must not delay the end.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("nats".to_owned()).spawn(body)?;
        let ended = || std::io::Error::other("the thread of the client has ended");
        is_connected.await.unwrap_or_else(|_| Err(ended().into()))?;
        Ok(Self { commands, next_subscription: Arc::new(AtomicU64::new(1)), max_payload })
    }

    async fn send(&self, command: Command) -> Result<(), RequestError> {
        self.commands.send(command).await.map_err(|_| RequestError::Closed)
    }

    /// Sends the messages of a subject to `messages`, for as long as the client lives.
    ///
    /// # Errors
    /// The client has ended.
    pub(crate) async fn subscribe_to(
        &self,
        subject: String,
        messages: mpsc::Sender<Message>,
    ) -> Result<u64, RequestError> {
        debug_assert!(is_valid_subject(&subject), "{subject:?}");
        let subscription = self.next_subscription.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Subscribe { subscription, subject, messages }).await?;
        Ok(subscription)
    }

    /// Subscribes to a new inbox with room for `messages_max` messages. Returns its subject, too.
    ///
    /// # Errors
    /// The client has ended.
    pub(crate) async fn open_inbox(
        &self,
        messages_max: usize,
    ) -> Result<(String, Subscription), RequestError> {
        let subject = format!("_INBOX.{}", random_token());
        let (sender, messages) = mpsc::channel(messages_max);
        let number = self.subscribe_to(subject.clone(), sender).await?;
        Ok((subject, Subscription { number, commands: self.commands.clone(), messages }))
    }

    /// Publishes a message. `headers` are empty or complete.
    ///
    /// # Errors
    /// The client has ended, or the server accepts no message of this size.
    pub(crate) async fn publish(
        &self,
        subject: String,
        reply: String,
        headers: &'static str,
        payload: Vec<u8>,
    ) -> Result<(), RequestError> {
        debug_assert!(is_valid_subject(&subject), "{subject:?}");
        let (bytes, limit) = (headers.len() + payload.len(), self.max_payload.load(Ordering::Relaxed));
        if bytes > limit {
            return Err(RequestError::TooLarge(bytes, limit));
        }
        self.send(Command::Publish { subject, reply, headers, payload }).await
    }

    /// Publishes a message and waits for the response, without an end.
    ///
    /// # Errors
    /// Those of [`NatsClient::publish`]; nobody receives the subject.
    pub(crate) async fn request(
        &self,
        subject: String,
        headers: &'static str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, RequestError> {
        let (inbox, mut replies) = self.open_inbox(1).await?;
        self.publish(subject, inbox, headers, payload).await?;
        let reply = replies.next().await?;
        match reply.status {
            Some(503) => Err(RequestError::NoResponders),
            _ => Ok(reply.payload),
        }
    }

    /// Waits until all earlier commands are in the kernel, without an end.
    pub(crate) async fn flush(&self) {
        let (flush, flushed) = oneshot::channel();
        if self.send(Command::Flush(flush)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

/// Returns 22 random letters, which nobody can guess.
pub(crate) fn random_token() -> String {
    let mut bytes = [0; 22];
    // The kernel's random numbers are always available; a fault shows as an equal name.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}
