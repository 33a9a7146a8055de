//! Images in memory.

use super::super::transforms::Image;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks from this size on come from the system one by one, which has so many of them for a process.
const LARGE: usize = 1 << 20;
const MOST_LARGE: usize = 32_768;

/// A place for each sample.
pub struct Memory {
    images: Vec<OnceLock<Image>>,
    large: AtomicUsize,
}

impl Memory {
    pub fn new(len: usize) -> Self {
        Memory { images: (0..len).map(|_| OnceLock::new()).collect(), large: AtomicUsize::new(0) }
    }

    pub fn get(&self, sample: usize) -> Option<&Image> {
        self.images.get(sample)?.get()
    }

    /// Keeps an image; whether it did.
    pub fn put(&self, sample: usize, mut image: Image) -> bool {
        let Some(place) = self.images.get(sample) else { return false };
        if image.pixels.len() >= LARGE && self.large.fetch_add(1, Ordering::Relaxed) >= MOST_LARGE {
            return false;
        }
        image.pixels.shrink_to_fit();
        // Another thread may have been faster.
        place.set(image).is_ok()
    }
}
