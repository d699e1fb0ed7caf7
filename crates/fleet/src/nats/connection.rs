//! One connection to a server: address, TLS, INFO, CONNECT and the first PONG.

use std::time::Duration;

use rt::address::Address;
use rt::stream::Stream;
use rt::tls::{CertificateFiles, ClientTls, ClientTlsOptions, Verification};
use serde::Deserialize;
use serde_json::json;

use super::protocol::{Decoder, ProtocolError, ServerOperation};
use super::{ClientOptions, ConnectError, ServerUrl};

/// Maximum time of a connection to one address, until the server has accepted the client.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const READ_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerInfo {
    nonce: String,
    tls_required: bool,
    /// Maximum size of a message; 0: unknown.
    pub(crate) max_payload: usize,
    /// Addresses of all servers of the cluster.
    pub(crate) connect_urls: Vec<String>,
}

pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) decoder: Decoder,
    pub(super) info: ServerInfo,
}

impl Connection {
    /// Connects to the first address of a server that accepts the client.
    ///
    /// # Errors
    /// No address accepts the client; the error is the one of the last address.
    pub(super) async fn open(server: &ServerUrl, options: &ClientOptions) -> Result<Self, ConnectError> {
        let resolve_error = |error| ConnectError::Resolve(server.host.clone(), error);
        let lookup = tokio::net::lookup_host((server.host.as_str(), server.port));
        let lookup = tokio::time::timeout(CONNECT_TIMEOUT, lookup).await;
        let addresses = lookup.map_err(|_| ConnectError::TimedOut)?.map_err(resolve_error)?;
        let mut failure = resolve_error(std::io::Error::other("it has no address"));
        for address in addresses {
            let address = Address::Tcp(address);
            let attempt = Self::open_address(&address, server, options);
            match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = ConnectError::TimedOut,
            }
        }
        Err(failure)
    }

    async fn open_address(
        address: &Address,
        server: &ServerUrl,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let stream = rt::dial::connect(address, None).await?;
        let mut connection = Self { stream, decoder: Decoder::default(), info: ServerInfo::default() };
        connection.info = connection.read_operation(read_info).await?;
        let client_requires = options.ca.is_some() || options.certificate.is_some();
        let requires_tls = server.requires_tls || client_requires;
        if requires_tls || connection.info.tls_required {
            // The files are read again for each connection: certificates are renewed.
            let tls = ClientTls::new(&tls_options(options))?;
            let mut stream = connection.stream.connect_tls(&tls, &server.host)?;
            std::future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
            connection.stream = stream;
            // Bytes that came before the handshake may be of somebody else.
            connection.decoder = Decoder::default();
        }
        let text = connect_text(options, &connection.info, requires_tls);
        connection.stream.send(format!("CONNECT {text}\r\nPING\r\n").as_bytes()).await?;
        std::future::poll_fn(|cx| connection.stream.poll_flush(cx)).await?;
        connection.read_operation(read_acceptance).await?;
        Ok(connection)
    }

    /// Reads operations until `take` returns a result for one.
    async fn read_operation<T>(
        &mut self,
        take: fn(ServerOperation<'_>) -> Option<Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            while let Some(operation) = self.decoder.next()? {
                if let Some(result) = take(operation) {
                    return result;
                }
            }
            match self.stream.read(&mut buffer).await? {
                0 => {
                    let text = "the server closed the connection";
                    return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text).into());
                }
                bytes => self.decoder.extend(&buffer[..bytes]),
            }
        }
    }
}

fn read_info(operation: ServerOperation<'_>) -> Option<Result<ServerInfo, ConnectError>> {
    Some(match operation {
        ServerOperation::Info(text) => Ok(parse_info(text)),
        ServerOperation::Error(text) => Err(rejection(text)),
        _ => Err(ProtocolError::Unknown("INFO does not come first".to_owned()).into()),
    })
}

/// Parses INFO. A field of another type is one that weir does not know.
pub(crate) fn parse_info(text: &str) -> ServerInfo {
    serde_json::from_str(text).unwrap_or_default()
}

fn read_acceptance(operation: ServerOperation<'_>) -> Option<Result<(), ConnectError>> {
    match operation {
        ServerOperation::Pong => Some(Ok(())),
        ServerOperation::Error(text) => Some(Err(rejection(text))),
        _ => None,
    }
}

fn rejection(text: &str) -> ConnectError {
    match text.to_ascii_lowercase().starts_with("authorization violation") {
        true => ConnectError::Rejected,
        false => ConnectError::Server(text.to_owned()),
    }
}

fn tls_options(options: &ClientOptions) -> ClientTlsOptions {
    ClientTlsOptions {
        verification: options.ca.clone().map_or(Verification::HostRoots, Verification::CaFile),
        certificate: options.certificate.clone().map(|(certificate, key)| CertificateFiles {
            certificate,
            key,
            ocsp: None,
        }),
        resumes: false,
        ..ClientTlsOptions::default()
    }
}

/// Returns the properties and the credentials of the client, in JSON.
fn connect_text(options: &ClientOptions, info: &ServerInfo, requires_tls: bool) -> serde_json::Value {
    let credentials = &options.credentials;
    let mut text = json!({
        "verbose": false, "pedantic": false, "tls_required": requires_tls, "name": options.name, "lang": "weir",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "echo": true, "headers": true, "no_responders": true,
    });
    if let Some((user, password)) = &credentials.user {
        text["user"] = json!(user);
        text["pass"] = json!(password);
    }
    if let Some(token) = &credentials.token {
        text["auth_token"] = json!(token);
    }
    if let Some(key) = &credentials.nkey {
        text["nkey"] = json!(key.public());
        text["sig"] = json!(key.sign(&info.nonce));
    }
    if let Some((jwt, key)) = &credentials.jwt {
        text["jwt"] = json!(jwt);
        text["sig"] = json!(key.sign(&info.nonce));
    }
    text
}
