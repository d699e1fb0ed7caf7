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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::nats::{Credentials, ServerUrl};

    /// Accepts a client of a model of a server, and returns its connection after CONNECT.
    fn accept(listener: &TcpListener) -> (BufReader<TcpStream>, String) {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"INFO {\"max_payload\":100,\"nonce\":\"n\"} \r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let connect = read_line(&mut reader);
        assert_eq!(read_line(&mut reader), "PING");
        reader.get_mut().write_all(b"PONG\r\n").unwrap();
        (reader, connect)
    }

    fn read_line(reader: &mut BufReader<TcpStream>) -> String {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[test]
    fn a_lost_connection_is_made_again_with_its_subscriptions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nats://me:secret@{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, connect) = accept(&listener);
            assert!(
                connect.contains("\"user\":\"me\"") && connect.contains("\"pass\":\"secret\""),
                "{connect}"
            );
            assert_eq!(read_line(&mut client), "SUB a.* 1");
            client.get_mut().write_all(b"MSG a.b 1 2\r\nhi\r\nMSG a.b 77 2\r\nno\r\n-ERR 'x y'\r\n").unwrap();
            drop(client);
            let (mut client, _) = accept(&listener);
            assert_eq!(read_line(&mut client), "SUB a.* 1");
            client.get_mut().write_all(b"PING\r\nMSG a.c 1 0\r\n\r\n").unwrap();
            // A request that nobody receives.
            let lines: Vec<String> = (0..3).map(|_| read_line(&mut client)).collect();
            assert_eq!(lines[0], "PONG");
            let inbox = lines[1].split(' ').nth(1).unwrap();
            assert_eq!(lines[1], format!("SUB {inbox} 2"));
            assert_eq!(lines[2], format!("PUB q {inbox} 1"));
            let status = format!("HMSG {inbox} 2 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
            client.get_mut().write_all(status.as_bytes()).unwrap();
            assert_eq!((read_line(&mut client).as_str(), read_line(&mut client).as_str()), ("x", "UNSUB 2"));
            // The end of the last handle ends the connection.
            assert_eq!(read_line(&mut client), "");
        });
        rt::cores::block_on(async {
            let server_url = ServerUrl::parse(&url).unwrap();
            let credentials = Credentials { user: server_url.user.clone(), ..Credentials::default() };
            let options = ClientOptions {
                server: server_url,
                name: "test".to_owned(),
                credentials,
                ca: None,
                certificate: None,
            };
            let (events, mut link_events) = mpsc::channel(8);
            let client = NatsClient::connect(options, events).await.unwrap();
            let (inbox, mut messages) = mpsc::channel(8);
            client.subscribe_to("a.*".to_owned(), inbox).await.unwrap();
            let message = messages.recv().await.unwrap();
            assert_eq!((message.subject.as_str(), &message.payload[..]), ("a.b", &b"hi"[..]));
            assert_eq!(messages.recv().await.unwrap().subject, "a.c");
            for expected in [
                LinkEvent::Connected,
                LinkEvent::Rejected("x y".to_owned()),
                LinkEvent::Disconnected,
                LinkEvent::Connected,
            ] {
                assert_eq!(link_events.recv().await.unwrap(), expected);
            }
            let nobody = client.request("q".to_owned(), "", b"x".to_vec()).await;
            assert!(matches!(nobody, Err(RequestError::NoResponders)), "{nobody:?}");
            let large = client.publish("q".to_owned(), String::new(), "", vec![0; 101]).await;
            assert!(matches!(large, Err(RequestError::TooLarge(101, 100))), "{large:?}");
            client.flush().await;
        });
        server.join().unwrap();
    }
}
