//! The memory that all requests have together. A request is charged for its body as it comes, for what is made of it, and for its answer; it pays back when
//! it is done.

use super::refusal::Refusal;
use crate::terminal::human_bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory for all requests.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    used: AtomicUsize,
}

/// What a request has of it.
#[derive(Debug)]
pub struct Charge {
    of: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// So many bytes.
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Budget { total, used: AtomicUsize::new(0) })
    }

    /// Bytes that requests have now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Of a request that has nothing yet.
    pub fn charge(self: &Arc<Self>) -> Charge {
        Charge { of: Arc::clone(self), bytes: 0 }
    }
}

impl Charge {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// They are not there now; with what the request has already, they never are.
    pub fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let total = self.of.total;
        let own = self.bytes.saturating_add(bytes);
        if own > total {
            return Err(Refusal::too_large(format!(
                "the request takes {} of memory, and all requests together have {} (--max-memory)",
                human_bytes(own),
                human_bytes(total)
            )));
        }
        let with = |used: usize| used.checked_add(bytes).filter(|used| *used <= total);
        let taken = self.of.used.try_update(Ordering::Relaxed, Ordering::Relaxed, with);
        if taken.is_err() {
            return Err(Refusal::busy("other requests have all memory at the moment (--max-memory): come again"));
        }
        self.bytes = own;
        Ok(())
    }

    /// Gives `bytes` of it back.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.of.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn memory_is_given_once_and_comes_back() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (budget.charge(), budget.charge());
        one.add(60).unwrap();
        assert_eq!(other.add(60).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(one.add(41).unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(one.add(usize::MAX).unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        other.add(40).unwrap();
        one.give_back(10);
        assert_eq!(budget.used(), 90);
        drop(one);
        other.add(60).unwrap();
        assert_eq!(budget.used(), 100);
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}
