//! Objects in a bucket of the server's JetStream.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::AccountErrorKind;
use async_nats::jetstream::object_store::{Config, ObjectMetadata, ObjectStore};
use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::{NatsLink, error_chain};

/// Reason why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The server has no JetStream, or the account may not use it.
    #[error(
        "JetStream is not enabled for this account of the NATS server (start it with nats-server --jetstream, or \
         weir fleet serve --embedded)"
    )]
    NoJetStream,
    /// The bucket is missing.
    #[error("the bucket {0} is missing: no run was stored yet")]
    NoBucket(String),
    /// A request failed.
    #[error("cannot {action}: {text}")]
    Request {
        /// Request.
        action: String,
        /// Reason.
        text: String,
    },
    /// The object is larger than the caller accepts.
    #[error("the object {name} has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// Name of the object.
        name: String,
        /// Its size.
        bytes: u64,
        /// Maximum size.
        limit: u64,
    },
}

/// Object, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Texts that were stored with it.
    pub metadata: HashMap<String, String>,
}

/// Bucket.
#[derive(Clone)]
pub struct ObjectBucket {
    store: ObjectStore,
    name: String,
}

impl std::fmt::Debug for ObjectBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectBucket").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Maximum time of a request, and of the transfer of an object.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(120);

impl ObjectBucket {
    /// Opens a bucket; creates it with a maximum size if `create_bytes` has one.
    ///
    /// # Errors
    /// The server has no JetStream, or there is no such bucket.
    pub async fn open(link: &NatsLink, name: &str, create_bytes: Option<u64>) -> Result<Self, BucketError> {
        let action = format!("open the bucket {name}");
        let context = jetstream::new(link.client.clone());
        let account = bounded(&action, REQUEST_TIMEOUT, async { Ok(context.query_account().await) }).await?;
        account.map_err(|error| match error.kind() {
            AccountErrorKind::JetStream(_) | AccountErrorKind::JetStreamUnavailable => {
                BucketError::NoJetStream
            }
            AccountErrorKind::TimedOut => {
                let text = "no response (the permissions need $JS.API.> and _INBOX.>)";
                BucketError::Request { action: action.clone(), text: text.to_owned() }
            }
            AccountErrorKind::Other => request_error(&action, &error),
        })?;
        let found = bounded(&action, REQUEST_TIMEOUT, async { Ok(context.get_object_store(name).await) });
        let store = match (found.await?, create_bytes) {
            (Ok(store), _) => store,
            (Err(_), None) => return Err(BucketError::NoBucket(name.to_owned())),
            (Err(_), Some(bytes)) => {
                let config = Config {
                    bucket: name.to_owned(),
                    description: Some("runs of weir fleet".to_owned()),
                    max_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
                    num_replicas: 1,
                    ..Config::default()
                };
                let created = async {
                    let created = context.create_object_store(config).await;
                    created.map_err(|error| request_error(&action, &error))
                };
                bounded(&action, REQUEST_TIMEOUT, created).await?
            }
        };
        Ok(Self { store, name: name.to_owned() })
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
        let object = ObjectMetadata { name: name.to_owned(), metadata, ..ObjectMetadata::default() };
        let mut content = content;
        bounded(&action, TRANSFER_TIMEOUT, async {
            let stored = self.store.put(object, &mut content).await;
            stored.map(|_| ()).map_err(|error| request_error(&action, &error))
        })
        .await
    }

    /// Reads an object of up to `limit` bytes. Its digest is checked.
    ///
    /// # Errors
    /// It is missing or too large, or the server does not respond.
    pub async fn get(&self, name: &str, limit: u64) -> Result<Vec<u8>, BucketError> {
        let action = format!("read {name} from the bucket {}", self.name);
        bounded(&action, TRANSFER_TIMEOUT, async {
            let mut object = self.store.get(name).await.map_err(|error| request_error(&action, &error))?;
            let bytes = object.info().size as u64;
            if bytes > limit {
                return Err(BucketError::TooLarge { name: name.to_owned(), bytes, limit });
            }
            let mut content = Vec::new();
            let read = object.read_to_end(&mut content).await;
            read.map(|_| content).map_err(|error| request_error(&action, &error))
        })
        .await
    }

    /// Returns up to `max` objects.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn list(&self, max: usize) -> Result<Vec<ObjectEntry>, BucketError> {
        let action = format!("list the bucket {}", self.name);
        bounded(&action, TRANSFER_TIMEOUT, async {
            let objects = self.store.list().await.map_err(|error| request_error(&action, &error))?;
            let mut entries = Vec::new();
            let mut objects = objects.take(max);
            while let Some(object) = objects.next().await {
                let object = object.map_err(|error| request_error(&action, &error))?;
                entries.push(ObjectEntry {
                    name: object.name,
                    bytes: object.size as u64,
                    metadata: object.metadata,
                });
            }
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
        bounded(&action, REQUEST_TIMEOUT, async {
            self.store.delete(name).await.map_err(|error| request_error(&action, &error))
        })
        .await
    }
}

/// Returns the result of a request, or the end of its time.
async fn bounded<T>(
    action: &str,
    limit: Duration,
    request: impl Future<Output = Result<T, BucketError>>,
) -> Result<T, BucketError> {
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| {
        let text = format!("no response within {} s", limit.as_secs());
        Err(BucketError::Request { action: action.to_owned(), text })
    })
}

fn request_error(action: &str, error: &dyn std::error::Error) -> BucketError {
    BucketError::Request { action: action.to_owned(), text: error_chain(error) }
}
