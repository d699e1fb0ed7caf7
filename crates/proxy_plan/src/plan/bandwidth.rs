//! Limits of bytes per second.

use std::fmt;
use std::sync::Arc;

use crate::bandwidth::BandwidthGate;
pub use crate::bandwidth::SharedBandwidth;

/// Limits of bytes per second of a route or a listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandwidthPlan {
    /// Maximum rate of each response, or of the bytes for each client of mode tcp.
    pub download: Option<u64>,
    /// Bytes of each response before the rate counts.
    pub after_bytes: u64,
    /// Maximum rate of all responses together.
    pub total: Option<Arc<SharedBandwidth>>,
    /// Maximum rate of each request, or of the bytes of each client of mode tcp.
    pub upload: Option<u64>,
}

impl BandwidthPlan {
    /// Returns the gate of a response, or of the bytes for a client; `None`: they are not limited.
    pub fn download_gate(&self) -> Option<BandwidthGate> {
        BandwidthGate::new(self.download, self.after_bytes, self.total.clone())
    }

    /// Returns the gate of a request, or of the bytes of a client; `None`: they are not limited.
    pub fn upload_gate(&self) -> Option<BandwidthGate> {
        BandwidthGate::new(self.upload, 0, None)
    }
}

impl fmt::Display for BandwidthPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(rate) = self.download {
            parts.push(format!("{rate} B/s of each response after {} B", self.after_bytes));
        }
        if let Some(total) = &self.total {
            parts.push(format!("{} B/s of all responses", total.bytes_per_s));
        }
        if let Some(rate) = self.upload {
            parts.push(format!("{rate} B/s of each request"));
        }
        f.write_str(&parts.join(", "))
    }
}
