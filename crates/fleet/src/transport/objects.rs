//! Objects in a bucket of the server's JetStream, in the form of all NATS clients (ADR-20 of NATS): chunks on one
//! subject, and a description on another.

use std::collections::HashMap;
use std::time::Duration;

use aws_lc_rs::digest::SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};

use super::NatsLink;
use crate::nats::{NatsClient, RequestError, random_token};

/// Reason why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The server has no JetStream, or the account may not use it.
    #[error(
        "JetStream is not enabled for this account of the NATS server (start it with nats-server --jetstream, or \
         weir fleet serve --embedded)"
    )]
    NoJetStream,
    #[error("the bucket {0} is missing: no run was stored yet")]
    NoBucket(String),
    #[error("cannot {action}: {text}")]
    Request { action: String, text: String },
    /// The object is larger than the caller accepts.
    #[error("the object {name} has {bytes} bytes; the limit is {limit}")]
    TooLarge { name: String, bytes: u64, limit: u64 },
}

/// Object, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    pub name: String,
    pub bytes: u64,
    /// Texts that were stored with it.
    pub metadata: HashMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct ObjectBucket {
    client: NatsClient,
    name: String,
}

/// Maximum time of a request, and of the transfer of an object.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(120);
/// Size of a chunk; that of other clients.
const CHUNK_BYTES: usize = 128 * 1024;
/// Messages that are requested together: chunks, and descriptions.
const CHUNKS_PER_REQUEST: usize = 32;
const DESCRIPTIONS_PER_REQUEST: usize = 1_024;
/// Headers of a description: it replaces the earlier one of its object.
const ROLLUP: &str = "NATS/1.0\r\nNats-Rollup: sub\r\n\r\n";
/// Code of an error: there is no such message.
const NO_MESSAGE: u64 = 10_037;

/// Failure within a request, without its action.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no response within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("{0}")]
    Request(#[from] RequestError),
    /// Error of the server: its code and its text.
    #[error("{1}")]
    Server(u64, String),
    #[error("{0}")]
    Form(&'static str),
    #[error("it does not exist")]
    NoObject,
    #[error("too large")]
    TooLarge(u64),
}

impl ObjectBucket {
    /// Opens a bucket; creates it with a maximum size if `create_bytes` has one.
    ///
    /// # Errors
    /// The server has no JetStream, or there is no such bucket.
    pub async fn open(link: &NatsLink, name: &str, create_bytes: Option<u64>) -> Result<Self, BucketError> {
        let action = format!("open the bucket {name}");
        let failure =
            |error: Failure| BucketError::Request { action: action.clone(), text: error.to_string() };
        let bucket = Self { client: link.client.clone(), name: name.to_owned() };
        match bucket.api("INFO", &Value::Null).await {
            Ok(_) => {}
            Err(Failure::Server(..) | Failure::Request(RequestError::NoResponders)) => {
                return Err(BucketError::NoJetStream);
            }
            Err(Failure::TimedOut(_)) => {
                let text = "no response (the permissions need $JS.API.> and _INBOX.>)".to_owned();
                return Err(BucketError::Request { action, text });
            }
            Err(error) => return Err(failure(error)),
        }
        if !is_valid_bucket(name) {
            let text = "a name has letters, digits, - and _".to_owned();
            return Err(BucketError::Request { action, text });
        }
        let found = bucket.stream_api("STREAM.INFO", &Value::Null).await;
        match (found, create_bytes) {
            (Ok(_), _) => {}
            (Err(_), None) => return Err(BucketError::NoBucket(name.to_owned())),
            (Err(_), Some(bytes)) => {
                let config = bucket.config(i64::try_from(bytes).unwrap_or(i64::MAX));
                bucket.stream_api("STREAM.CREATE", &config).await.map_err(failure)?;
            }
        }
        Ok(bucket)
    }

    /// Stores an object; one with the same name is replaced.
    ///
    /// # Errors
    /// The bucket is full, or the server does not respond.
    pub async fn put(
        &self,
        name: &str,
        metadata: HashMap<String, String>,
        content: &[u8],
    ) -> Result<(), BucketError> {
        let action = format!("store {name} in the bucket {}", self.name);
        bounded(action, TRANSFER_TIMEOUT, async {
            let earlier = self.description(name).await?;
            let id = random_token();
            for chunk in content.chunks(CHUNK_BYTES) {
                self.publish(self.chunks_subject(&id), "", chunk.to_vec()).await?;
            }
            let description = json!({
                "name": name, "metadata": metadata, "bucket": self.name, "nuid": id, "size": content.len(),
                "chunks": content.len().div_ceil(CHUNK_BYTES), "digest": format!("SHA-256={}", digest(content)),
                "mtime": record::file::wall_clock_now(), "options": {"max_chunk_size": CHUNK_BYTES},
            });
            self.publish(self.description_subject(name), ROLLUP, description.to_string().into()).await?;
            match earlier {
                Some(earlier) => self.purge_chunks(&earlier).await,
                None => Ok(()),
            }
        })
        .await
    }

    /// Reads an object of up to `limit` bytes. Its digest is checked.
    ///
    /// # Errors
    /// It is missing or too large, or the server does not respond.
    pub async fn get(&self, name: &str, limit: u64) -> Result<Vec<u8>, BucketError> {
        let action = format!("read {name} from the bucket {}", self.name);
        let read = async {
            let description = self.existing(name).await?;
            let bytes = description["size"].as_u64().ok_or(Failure::Form("the object has no size"))?;
            if bytes > limit {
                return Err(Failure::TooLarge(bytes));
            }
            let chunks = description["chunks"].as_u64().unwrap_or(0);
            let mut content = Vec::new();
            // An empty object has no chunks.
            if chunks > 0 {
                let subject = self.chunks_subject(description["nuid"].as_str().unwrap_or_default());
                let max = usize::try_from(chunks).unwrap_or(usize::MAX);
                self.read_messages(subject, (CHUNKS_PER_REQUEST, max), |chunk| {
                    content.extend_from_slice(chunk);
                    // A chunk that does not belong to the object is found below.
                    content.len() as u64 <= bytes
                })
                .await?;
            }
            let expected = description["digest"].as_str().and_then(|text| text.strip_prefix("SHA-256="));
            // Padding is optional.
            let is_intact = expected.map(|text| text.trim_end_matches('='))
                == Some(digest(&content).trim_end_matches('='));
            match content.len() as u64 == bytes && is_intact {
                true => Ok(content),
                false => Err(Failure::Form("its content does not match its digest")),
            }
        };
        let read = tokio::time::timeout(TRANSFER_TIMEOUT, read).await;
        read.unwrap_or(Err(Failure::TimedOut(TRANSFER_TIMEOUT))).map_err(|error| match error {
            Failure::TooLarge(bytes) => BucketError::TooLarge { name: name.to_owned(), bytes, limit },
            error => BucketError::Request { action, text: error.to_string() },
        })
    }

    /// Returns up to `max` objects.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn list(&self, max: usize) -> Result<Vec<ObjectEntry>, BucketError> {
        let action = format!("list the bucket {}", self.name);
        bounded(action, TRANSFER_TIMEOUT, async {
            let mut entries = Vec::new();
            let subject = format!("$O.{}.M.>", self.name);
            self.read_messages(subject, (DESCRIPTIONS_PER_REQUEST, usize::MAX), |text| {
                entries.extend(parse_entry(text));
                entries.len() < max
            })
            .await?;
            Ok(entries)
        })
        .await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn delete(&self, name: &str) -> Result<(), BucketError> {
        let action = format!("delete {name} from the bucket {}", self.name);
        bounded(action, REQUEST_TIMEOUT, async {
            let mut description = self.existing(name).await?;
            description["size"] = json!(0);
            description["chunks"] = json!(0);
            description["deleted"] = json!(true);
            self.publish(self.description_subject(name), ROLLUP, description.to_string().into()).await?;
            self.purge_chunks(&description).await
        })
        .await
    }

    /// Returns the description of an object that is not deleted.
    async fn existing(&self, name: &str) -> Result<Value, Failure> {
        let description = self.description(name).await?.ok_or(Failure::NoObject)?;
        if description["deleted"] == true { Err(Failure::NoObject) } else { Ok(description) }
    }

    /// Returns the description of an object, also of one that is deleted.
    async fn description(&self, name: &str) -> Result<Option<Value>, Failure> {
        let last = json!({"last_by_subj": self.description_subject(name)});
        let found = match self.stream_api("STREAM.MSG.GET", &last).await {
            Err(Failure::Server(NO_MESSAGE, _)) => return Ok(None),
            found => found?,
        };
        let text = found["message"]["data"].as_str().unwrap_or_default();
        let description = STANDARD.decode(text).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        description.map(Some).ok_or(Failure::Form("the description of the object is damaged"))
    }

    /// Reads the messages of a subject that are there now, up to `max`, in requests for `batch` messages each. `take`
    /// returns false if it needs no further one.
    async fn read_messages(
        &self,
        subject: String,
        (batch, max): (usize, usize),
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let config = json!({
            "stream_name": self.stream(),
            "config": {
                "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant", "filter_subject": subject,
                "mem_storage": true, "num_replicas": 1, "inactive_threshold": nanoseconds(TRANSFER_TIMEOUT),
            },
        });
        let consumer = self.stream_api("CONSUMER.CREATE", &config).await?;
        let name = consumer["name"].as_str().ok_or(Failure::Form("a consumer without a name"))?;
        let pending = consumer["num_pending"].as_u64().and_then(|pending| usize::try_from(pending).ok());
        let mut remaining = pending.unwrap_or(0).min(max);
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{name}", self.stream());
        'requests: while remaining > 0 {
            let count = remaining.min(batch);
            let (inbox, mut messages) = self.client.open_inbox(count + 8).await?;
            let request = json!({"batch": count, "expires": nanoseconds(REQUEST_TIMEOUT)});
            self.client.publish(next.clone(), inbox, "", request.to_string().into()).await?;
            for _ in 0..count {
                let message = tokio::time::timeout(REQUEST_TIMEOUT, messages.next()).await;
                let message = message.map_err(|_| Failure::TimedOut(REQUEST_TIMEOUT))??;
                if message.status.is_some() {
                    return Err(Failure::Form("the server ended the transfer"));
                }
                if !take(&message.payload) {
                    break 'requests;
                }
            }
            remaining -= count;
        }
        // It would end by itself.
        let _ = self.api(&format!("CONSUMER.DELETE.{}.{name}", self.stream()), &Value::Null).await;
        Ok(())
    }

    /// Publishes a message to the stream, and waits until it is stored.
    async fn publish(&self, subject: String, headers: &'static str, payload: Vec<u8>) -> Result<(), Failure> {
        parse_response(&respond(self.client.request(subject, headers, payload)).await?).map(|_| ())
    }

    async fn purge_chunks(&self, description: &Value) -> Result<(), Failure> {
        let id = description["nuid"].as_str().unwrap_or_default();
        if id.is_empty() {
            return Ok(());
        }
        self.stream_api("STREAM.PURGE", &json!({"filter": self.chunks_subject(id)})).await.map(|_| ())
    }

    async fn stream_api(&self, request: &str, body: &Value) -> Result<Value, Failure> {
        self.api(&format!("{request}.{}", self.stream()), body).await
    }

    async fn api(&self, request: &str, body: &Value) -> Result<Value, Failure> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = respond(self.client.request(format!("$JS.API.{request}"), "", body)).await?;
        parse_response(&response)
    }

    fn config(&self, bytes: i64) -> Value {
        json!({
            "name": self.stream(), "description": "runs of weir fleet", "max_bytes": bytes, "num_replicas": 1,
            "subjects": [format!("$O.{}.C.>", self.name), format!("$O.{}.M.>", self.name)],
            "retention": "limits", "storage": "file", "discard": "new", "allow_rollup_hdrs": true,
            "allow_direct": true, "max_consumers": -1, "max_msgs": -1, "max_msg_size": -1,
        })
    }

    fn stream(&self) -> String {
        format!("OBJ_{}", self.name)
    }

    fn chunks_subject(&self, id: &str) -> String {
        format!("$O.{}.C.{id}", self.name)
    }

    fn description_subject(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.name, URL_SAFE.encode(name))
    }
}

fn is_valid_bucket(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Returns the entry of a description; `None` for a deleted object, and for one of another form.
fn parse_entry(text: &[u8]) -> Option<ObjectEntry> {
    let description: Value = serde_json::from_slice(text).ok()?;
    if description["deleted"] == true {
        return None;
    }
    let texts = description["metadata"].as_object().into_iter().flatten();
    let texts = texts.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
    Some(ObjectEntry {
        name: description["name"].as_str()?.to_owned(),
        bytes: description["size"].as_u64()?,
        metadata: texts.collect(),
    })
}

fn parse_response(response: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(response)
        .map_err(|_| Failure::Form("the response of the server is no JSON"))?;
    match &value["error"] {
        Value::Null => Ok(value),
        error => Err(Failure::Server(
            error["err_code"].as_u64().unwrap_or(0),
            error["description"].as_str().unwrap_or("an error without a text").to_owned(),
        )),
    }
}

/// Returns the response to a request, or the end of its time.
async fn respond(request: impl Future<Output = Result<Vec<u8>, RequestError>>) -> Result<Vec<u8>, Failure> {
    let response = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
    Ok(response.map_err(|_| Failure::TimedOut(REQUEST_TIMEOUT))??)
}

/// Returns the result of an action, or the end of its time.
async fn bounded<T>(
    action: String,
    limit: Duration,
    body: impl Future<Output = Result<T, Failure>>,
) -> Result<T, BucketError> {
    let result = tokio::time::timeout(limit, body).await.unwrap_or(Err(Failure::TimedOut(limit)));
    result.map_err(|error| BucketError::Request { action, text: error.to_string() })
}

/// Returns the SHA-256 of bytes, in base 64.
fn digest(bytes: &[u8]) -> String {
    URL_SAFE.encode(aws_lc_rs::digest::digest(&SHA256, bytes))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
